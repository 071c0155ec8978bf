"""The algorithm of `torch.nn.DataParallel` in plain Python, for any kind of device.

Replica 0 shares the base's storage, so what its forward writes to a buffer, as batch norm does, stays. What other
replicas write to their copies is lost. If each lane has a device of its own, the messages and bytes are those of the
stock wrapper.

The code follows torch/nn/parallel/_functions.py (autograd nodes), torch/csrc/cuda/comm.cpp (broadcast) and
torch/nn/parallel/comm.py (reduction). `Floor` is the work without any of it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain
from threading import Thread
from typing import Any

import torch
from torch import Tensor, nn
from torch._utils import ExceptionWrapper, _flatten_dense_tensors, _unflatten_dense_tensors
from torch.autograd import Function

from dpbench.variants.variant import Variant

LIMIT_BYTES = 10 * 2**20
"""The default of `broadcast_coalesced` and `reduce_add_coalesced`, torch/nn/parallel/comm.py."""

Item = tuple[Hashable, int]
"""A tensor's kind, equal for all of a message, and its bytes."""


def broadcast_groups(items: Sequence[Item], limit_bytes: int = LIMIT_BYTES) -> list[list[int]]:
    """The positions in `items` of each message's tensors.

    A message ends as soon as it *reaches* the limit: `take_tensors` in torch/csrc/utils/tensor_flatten.cpp.
    """
    groups: list[list[int]] = []
    waiting: defaultdict[Hashable, list[int]] = defaultdict(list)
    held_bytes: Counter[Hashable] = Counter()
    for i, (kind, n_bytes) in enumerate(items):
        waiting[kind].append(i)
        held_bytes[kind] += n_bytes
        if held_bytes[kind] >= limit_bytes:
            groups.append(waiting.pop(kind))
            held_bytes[kind] = 0
    return groups + list(waiting.values())


def reduction_groups(items: Sequence[Item], limit_bytes: int = LIMIT_BYTES) -> list[list[int]]:
    """The positions in `items` of each message's tensors.

    A message ends before it would *exceed* the limit, so only a single tensor can: `_take_tensors` in torch/_utils.py.
    """
    groups: list[list[int]] = []
    waiting: defaultdict[Hashable, list[int]] = defaultdict(list)
    held_bytes: Counter[Hashable] = Counter()
    for i, (kind, n_bytes) in enumerate(items):
        if held_bytes[kind] > 0 and held_bytes[kind] + n_bytes > limit_bytes:
            groups.append(waiting.pop(kind))
            held_bytes[kind] = 0
        waiting[kind].append(i)
        held_bytes[kind] += n_bytes
    return groups + list(waiting.values())


class NaiveBroadcast(Function):
    """From n tensors on ``devices[0]`` to n for each lane, in lane order; lane 0 gets the tensors themselves."""

    @staticmethod
    def forward(ctx: Any, devices: Sequence[torch.device], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.devices = devices
        lanes = broadcast_coalesced(tensors, devices)
        frozen = [i for i, needed in enumerate(ctx.needs_input_grad[1:]) if not needed]
        ctx.mark_non_differentiable(*(lane[i] for lane in lanes for i in frozen))
        return tuple(chain.from_iterable(lanes))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ReduceAdd.apply(ctx.devices, *gradients)


class ReduceAdd(Function):
    """From n tensors for each lane, in lane order, to n sums on ``devices[0]``."""

    @staticmethod
    def forward(ctx: Any, devices: Sequence[torch.device], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.devices = devices
        n = len(tensors) // len(devices)
        return tuple(reduce_add_coalesced([tensors[i : i + n] for i in range(0, len(tensors), n)], devices[0]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *NaiveBroadcast.apply(ctx.devices, *gradients)


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[torch.device]) -> list[list[Tensor]]:
    """For each lane: `tensors` themselves for lane 0, copies for the others, even on its device."""
    lanes = [list(tensors) for _ in devices]
    wires = [_as_real(t) for t in tensors]
    for group in broadcast_groups([_item(t) for t in wires]):
        members = [wires[i] for i in group]
        flat = _flatten_dense_tensors(members)
        for lane, device in zip(lanes[1:], devices[1:], strict=True):
            message = flat.to(device, copy=True)
            for i, part in zip(group, _unflatten_dense_tensors(message, members), strict=True):
                lane[i] = _as_sent(part, like=tensors[i])
    return lanes


def reduce_add_coalesced(lanes: Sequence[Sequence[Tensor]], device: torch.device) -> list[Tensor]:
    """Sums over the lanes, on `device`, lane 0's; of sparse tensors they are sparse."""
    sums = list(lanes[0])
    dense = []
    for i, tensors in enumerate(zip(*lanes, strict=True)):
        if all(t.is_sparse for t in tensors):
            sums[i] = _add(tensors, device)
        else:
            dense.append(i)
    wires = [[_as_real(lane[i].to_dense() if lane[i].is_sparse else lane[i]) for i in dense] for lane in lanes]
    for group in reduction_groups([_item(t) for t in wires[0]]):
        messages = [_flatten_dense_tensors([lane[i] for i in group]) for lane in wires]
        total = _add(messages, device)
        for i, part in zip(group, _unflatten_dense_tensors(total, [wires[0][i] for i in group]), strict=True):
            sums[dense[i]] = _as_sent(part, like=lanes[0][dense[i]])
    return sums


def _add(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    if len(tensors) == 1:
        # Autograd returns a view if a node returns its input itself, and sparse tensors have no views.
        return tensors[0].detach()
    total = tensors[0] + tensors[1].to(device)
    for tensor in tensors[2:]:
        total.add_(tensor.to(device))
    return total


def _item(tensor: Tensor) -> Item:
    return tensor.dtype, tensor.numel() * tensor.element_size()


def _as_real(tensor: Tensor) -> Tensor:
    """One message can hold both real and complex tensors."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _as_sent(part: Tensor, like: Tensor) -> Tensor:
    """`.data` gives each part its own version counter, although parts share the message's storage."""
    return torch.view_as_complex(part.data) if like.is_complex() else part.data


def replicate(base: nn.Module, devices: Sequence[torch.device]) -> list[nn.Module]:
    """A replica of `base`, whose tensors are on ``devices[0]``, on each device; replica 0 shares its storage.

    A replica's parameters are plain attributes, outputs of the node that leads back to the base. A module or tensor
    that the base uses twice stays one in each replica.
    """
    buffers = list(base.buffers())
    copies = [
        {**parameters, **with_grad, **without_grad}
        for parameters, with_grad, without_grad in zip(
            _broadcast(list(base.parameters()), devices),
            _broadcast([buffer for buffer in buffers if buffer.requires_grad], devices),
            _broadcast([buffer for buffer in buffers if not buffer.requires_grad], devices),
            strict=True,
        )
    ]
    return [_rebuild(base, lane) for lane in copies]


def _broadcast(tensors: list[Tensor], devices: Sequence[torch.device]) -> list[dict[Tensor, Tensor]]:
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        flat = NaiveBroadcast.apply(devices, *tensors)
        lanes = [flat[i : i + len(tensors)] for i in range(0, len(flat), len(tensors))]
    else:
        lanes = broadcast_coalesced(tensors, devices)
    return [dict(zip(tensors, lane, strict=True)) for lane in lanes]


def _rebuild(base: nn.Module, copies: dict[Tensor, Tensor]) -> nn.Module:
    shells = {module: module._replicate_for_data_parallel() for module in base.modules()}
    for module, shell in shells.items():
        for name, child in module._modules.items():
            if child is not None:
                setattr(shell, name, shells[child])
        for name, parameter in module._parameters.items():
            if parameter is None:
                shell._parameters[name] = None
            else:
                setattr(shell, name, copies[parameter])
        for name, buffer in module._buffers.items():
            if buffer is not None:
                setattr(shell, name, copies[buffer])
    return shells[base]


def parallel_apply(
    replicas: Sequence[nn.Module], chunks: Sequence[tuple[Tensor, ...]], devices: Sequence[torch.device]
) -> list[Any]:
    """When all have ended, raise the first exception, with the replica and the device."""
    contexts = [_callers_context(device) for device in devices]
    results: list[Any] = [None] * len(replicas)

    def run(i: int) -> None:
        try:
            with contexts[i]():
                results[i] = replicas[i](*chunks[i])
        except Exception:
            results[i] = ExceptionWrapper(where=f"in replica {i} on device {devices[i]}")

    if len(replicas) == 1:
        run(0)
    else:
        threads = [Thread(target=run, args=(i,)) for i in range(len(replicas))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for result in results:
        if isinstance(result, ExceptionWrapper):
            result.reraise()
    return results


def _callers_context(device: torch.device) -> Callable[[], AbstractContextManager[None]]:
    """A context for another thread: the caller's grad mode, stream and autocast state.

    The stock wrapper loses autocast's dtype and cache flag, so there bfloat16 becomes float16.
    """
    grad_enabled = torch.is_grad_enabled()
    stream = None if device.type == "cpu" else torch.accelerator.current_stream(device)
    autocast = torch.is_autocast_enabled(device.type)
    dtype = torch.get_autocast_dtype(device.type)
    cached = torch.is_autocast_cache_enabled()

    @contextmanager
    def enter() -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(grad_enabled))
            if stream is not None:
                stack.enter_context(torch.accelerator.device_index(device.index))
                stack.enter_context(stream)
            if autocast:
                stack.enter_context(torch.autocast(device.type, dtype=dtype, cache_enabled=cached))
            yield

    return enter


def scatter(inputs: Sequence[Tensor], devices: Sequence[torch.device]) -> list[tuple[Tensor, ...]]:
    """A chunk has ceil(batch / lanes) items, so the last lanes may get none and are left out."""
    parts = [
        [chunk.to(device, non_blocking=True) for chunk, device in zip(x.chunk(len(devices)), devices, strict=False)]
        for x in inputs
    ]
    return list(zip(*parts, strict=True))


def gather(outputs: Sequence[Any], device: torch.device) -> Any:
    """Concatenate on `device`, in the structure of the first output: dicts, lists, tuples and named tuples.

    0-dim tensors become a vector with one item for each lane.
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        return torch.cat([x.reshape(x.shape or 1).to(device) for x in outputs])
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((key, gather([x[key] for x in outputs], device)) for key in first)
    members = (gather(member, device) for member in zip(*outputs, strict=True))
    return first._make(members) if hasattr(first, "_make") else type(first)(members)


class Naive:
    """Its four steps have the stock wrapper's names and can be overridden."""

    scatter = staticmethod(scatter)
    replicate = staticmethod(replicate)
    parallel_apply = staticmethod(parallel_apply)
    gather = staticmethod(gather)

    def __init__(self, base: nn.Module, devices: list[torch.device]) -> None:
        self._base, self._devices = base, devices

    def __call__(self, *inputs: Tensor) -> Any:
        chunks = self.scatter(inputs, self._devices)
        if len(self._devices) == 1:
            return self._base(*chunks[0])
        lanes = self._devices[: len(chunks)]
        replicas = self.replicate(self._base, lanes)
        outputs = self.parallel_apply(replicas, chunks, lanes)
        return self.gather(outputs, self._devices[0])


NAIVE = Variant(Naive)


class Floor:
    """Run the base on each chunk in turn, on the first device: no scheme is faster if the lanes share a device.

    The running statistics of batch norm differ from a scheme's: they see every chunk, not the first alone.
    """

    scatter = staticmethod(scatter)
    gather = staticmethod(gather)

    def __init__(self, base: nn.Module, devices: list[torch.device]) -> None:
        self._base, self._devices = base, devices

    def __call__(self, *inputs: Tensor) -> Any:
        first = self._devices[0]
        chunks = self.scatter(inputs, [first] * len(self._devices))
        return self.gather(self.parallel_apply(chunks), first)

    def parallel_apply(self, chunks: list[tuple[Tensor, ...]]) -> list[Any]:
        return [self._base(*chunk) for chunk in chunks]


FLOOR = Variant(Floor, concurrent_lanes=False)
