"""One operator on simulated tensors: check the devices, compute on the CPU, account for what an accelerator would do."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dpbench.simulator import autograd, current, transfer
from dpbench.simulator.machine import Machine, the_machine
from dpbench.simulator.memory import Memory
from dpbench.simulator.operators import Facts, aten, facts, flops, written_arguments
from dpbench.simulator.record import Operator
from dpbench.simulator.tensor import SimTensor, parts

OnCpu = Callable[[Any, Any, Any], Any]


def run(func: Any, args: Any, kwargs: Any) -> Any:
    """Do `func`. Raises RuntimeError for mixed devices, NotImplementedError for what the simulator cannot do."""
    special = _SPECIAL.get(func)
    if special is not None:
        return special(func, args, kwargs)
    known = facts(func)
    if known.decomposes:
        return func.decompose(*args, **kwargs)
    return compute(func, known, args, kwargs)


def compute(func: Any, known: Facts, args: Any, kwargs: Any, on_cpu: OnCpu | None = None) -> Any:
    """An operator on one device; `on_cpu` computes it where torch's own CPU kernel would not do."""
    machine = the_machine()
    tensors = tensors_in((args, kwargs))
    kwargs, device = _target(known, tensors, kwargs, args)
    if known.takes_generator and kwargs.get("generator") is None and device.type == "sim":
        kwargs = {**kwargs, "generator": machine.generators[device.index]}
    result = (on_cpu or _on_cpu)(func, args, kwargs)
    if device.type == "cpu":
        return result
    stream = autograd.stream_of(device.index, tensors)
    with machine.lock:
        machine.drain()
        return _account(machine, func, known, args, kwargs, result, device, stream)


def tensors_in(values: Any) -> list[Tensor]:
    """All tensors in nested tuples, lists and dicts."""
    found: list[Tensor] = []
    _collect(values, found)
    return found


def _collect(value: Any, found: list[Tensor]) -> None:
    if isinstance(value, Tensor):
        found.append(value)
    elif isinstance(value, (tuple, list)):
        for item in value:
            _collect(item, found)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found)


def sim_device(device: Any) -> torch.device:
    """The device with its index: the current one where it names none. Raises RuntimeError for one that is not there."""
    device = torch.device(device)
    if device.type != "sim":
        return device
    index = current.device() if device.index is None else device.index
    count = the_machine().devices
    if index >= count:
        raise RuntimeError(
            f"device sim:{index} is not there: the simulator was started with {count}, sim:0 to sim:{count - 1}"
        )
    return torch.device("sim", index)


def _target(known: Facts, tensors: list[Tensor], kwargs: Any, args: Any) -> tuple[Any, torch.device]:
    """The call's arguments for the CPU, and the device it is for."""
    device = _common_device(known, tensors, args)
    if known.takes_device and kwargs.get("device") is not None:
        device = sim_device(kwargs["device"])
        kwargs = {**kwargs, "device": "cpu"}
    return kwargs, device


def _common_device(known: Facts, tensors: list[Tensor], args: Any) -> torch.device:
    """The one device of all tensors; CPU scalars, and CPU indices where CUDA takes them, do not count."""
    found: torch.device | None = None
    for tensor in tensors:
        if isinstance(tensor, SimTensor):
            if found is not None and tensor.device != found and not known.makes_like:
                raise RuntimeError(_mixed(known, tensor.device, found))
            found = found or tensor.device
    if found is None:
        return torch.device("cpu")
    for tensor in tensors:
        if not isinstance(tensor, SimTensor) and tensor.dim() > 0 and not known.makes_like:
            if not known.takes_cpu_indices or tensor is args[0]:
                raise RuntimeError(_mixed(known, tensor.device, found))
    return found


def _mixed(known: Facts, one: torch.device, other: torch.device) -> str:
    return f"Expected all tensors to be on the same device, but {known.name} got tensors on {other} and {one}"


def raw(value: Any) -> Any:
    """The CPU tensors in place of the simulated ones."""
    if isinstance(value, SimTensor):
        return value.raw
    if isinstance(value, (tuple, list)):
        return type(value)([raw(item) for item in value])
    return value


def _on_cpu(func: Any, args: Any, kwargs: Any) -> Any:
    try:
        return func(*[raw(a) for a in args], **{name: raw(a) for name, a in kwargs.items()})
    except NotImplementedError as error:
        raise NotImplementedError(f"the simulator cannot do {func}: torch has no CPU kernel for it") from error


def _account(
    machine: Machine, func: Any, known: Facts, args: Any, kwargs: Any, result: Any, device: torch.device, stream: int
) -> Any:
    """Allocate the outputs, note who reads and writes what, wrap. The caller holds the lock."""
    tensors = [t for t in tensors_in((args, kwargs)) if isinstance(t, SimTensor)]
    written = [t for t in tensors_in(written_arguments(func, args, kwargs)) if isinstance(t, SimTensor)]
    ids = {id(tensor.raw): tensor for tensor in tensors}
    fresh: list[SimTensor] = []
    wrapped = _wrap(result, lambda raw: ids[id(raw)] if id(raw) in ids else wrap(machine, raw, device, stream, fresh))
    for tensor in written:
        tensor.made_on = stream
        if known.changes_view:
            tensor.adopt(SimTensor(tensor.raw, device, tensor.memories, stream))
    reads = [] if known.makes_like or known.is_empty else _without(tensors, written if known.overwrites else [])
    is_launched = not known.is_empty and not known.changes_view and bool(fresh or written or known.answers_host)
    if is_launched:
        sources = [access for tensor in reads for access in tensor.accesses()]
        targets = [access for tensor in (*written, *fresh) for access in tensor.accesses()]
        launch, inputs = machine.launch(known.name, stream, sources, targets)
    if machine.recorder.running:
        machine.recorder.add(
            Operator(
                id=launch.event if is_launched else machine.recorder.next_id(),
                name=known.name,
                device=device.index,
                stream=stream,
                is_launched=is_launched,
                flops=flops(func, args, kwargs, wrapped) if is_launched else 0,
                read_bytes=_bytes(reads) if is_launched else 0,
                written_bytes=_bytes([*written, *fresh]) if is_launched else 0,
                inputs=inputs if is_launched else (),
                node=autograd.node_name(),
                line=launch.line if is_launched else "",
            )
        )
    if known.answers_host:
        machine.host_wait([stream])
    autograd.hand_on(fresh + written, tensors, stream)
    return wrapped


def _without(tensors: list[SimTensor], others: list[SimTensor]) -> list[SimTensor]:
    return [tensor for tensor in tensors if all(tensor is not other for other in others)]


def _bytes(tensors: list[SimTensor]) -> int:
    return sum(part.numel() * part.itemsize for tensor in tensors for part in parts(tensor.raw))


def _wrap(value: Any, one: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return one(value)
    if isinstance(value, (tuple, list)):
        return type(value)([_wrap(item, one) for item in value])
    return value


def wrap(
    machine: Machine, raw: Tensor, device: torch.device, stream: int, fresh: list[SimTensor] | None = None
) -> SimTensor:
    """A simulated tensor over `raw`; memory that did not exist is allocated on `stream`, and the tensor put in `fresh`."""
    memories, is_fresh = [], False
    for part in parts(raw):
        storage = part.untyped_storage()
        memory = machine.memories.find(storage)
        if memory is None:
            memory = Memory(machine, storage, device.index, stream)
            machine.memories.add(memory)
            is_fresh = True
        memories.append(memory)
    tensor = SimTensor(raw, device, tuple(memories), stream)
    if is_fresh and fresh is not None:
        fresh.append(tensor)
    return tensor


def _record_stream(func: Any, args: Any, kwargs: Any) -> None:
    tensor, stream = args
    with the_machine().lock:
        for memory in tensor.memories:
            if memory.block and memory.block.stream != stream.stream_id:
                memory.block.other_streams.add(stream.stream_id)


def _dropout(func: Any, args: Any, kwargs: Any) -> Any:
    """One fused kernel, as on CUDA, with the numbers of the device's own generator."""
    generator = the_machine().generators[args[0].device.index]

    def on_cpu(_: Any, args: Any, __: Any) -> Any:
        values, probability, training = raw(args)
        if not training:
            return values.clone(), torch.ones_like(values, dtype=torch.bool)
        mask = torch.empty_like(values, dtype=torch.bool).bernoulli_(1 - probability, generator=generator)
        return values * mask * (0.0 if probability == 1 else 1 / (1 - probability)), mask

    return compute(func, facts(func), args, kwargs, on_cpu)


_SPECIAL: dict[Any, Callable[[Any, Any, Any], Any]] = {
    aten.record_stream.default: _record_stream,
    aten.native_dropout.default: _dropout,
    aten._to_copy.default: transfer.to_copy,
    aten.copy_.default: transfer.copy_,
    aten._foreach_copy_.default: transfer.foreach_copy_,
    aten._local_scalar_dense.default: transfer.item,
}
