"""Cut a batch into chunks, one per lane; gather the replicas' outputs on one device.

With `Policy.shares` the exact part of a lane is ``batch * share / sum(shares)``, rounded down. The items that are left
go to the largest remainders::

    shares      1    2    1
    exact       2.5  5    2.5     of 10 items
    chunks      3    5    2
"""

import copy
import dataclasses
import gc
import math
import warnings
from collections import UserList, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import cycle
from operator import attrgetter
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function, forward_ad
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves

from dpbench.parallel.devices import DeviceLike, resolve_device
from dpbench.parallel.lanes import Lane, SideStreams, Stream, current_stream, fork, is_link, use_stream, wait_stream
from dpbench.parallel.policy import DEFAULT_POLICY, Policy, Shares, check_policy, checked_shares, shares_of_lanes
from dpbench.parallel.transfer import copy_into, copy_to, send_chunks

Chunks = list[Any]
Cutter = Callable[[Tensor], Sequence[Tensor]]
_DEVICE = attrgetter("device")
_DATA = attrgetter("data")
_CUT_OR_SHARED = (Tensor, int, float, str, type(None))
_WITHOUT_BATCH = (int, float, str, bytes, type(None), type, ModuleType, FunctionType, nn.Module, nn.Parameter)
_NUMBERS = "biufc"
"""The kinds of NumPy's types that are numbers."""
MOST_VALUES = 1000
"""An object may lead to a whole data set, and is looked through in every forward."""


def scatter(inputs: Any, target_gpus: Sequence[DeviceLike], dim: int = 0, policy: Policy = DEFAULT_POLICY) -> Any:
    """Slice tensors along `dim` into chunks of ceil(size / devices), one per device.

    There are fewer chunks if the batch is short. `Policy.shares` gives other sizes (`chunk_sizes`). Raises
    ValueError unless there is one share for each device.

    Tuples, named tuples, lists and dicts are searched for tensors, unless they are empty. Every device gets the same
    reference to any other object. Returns a tuple for a tensor, a list for anything else. A chunk that is already on
    its device has the tensor's memory.

    Raises TypeError for a PackedSequence, and ValueError for a named tuple whose tensors have different sizes along
    `dim`. Raises TypeError too if devices are repeated and an object or array holds a batch that is not cut.
    """
    all_lanes = _plain_lanes(target_gpus, policy)
    shares = shares_of_lanes(policy.shares, len(all_lanes))
    lanes = _used(all_lanes, shares)
    if isinstance(inputs, Tensor):
        return tuple(cut_tensor(inputs, lanes, dim, shares))
    _check_cuttable([inputs], lanes, dim)
    chunks = _walk(inputs, lambda tensor: cut_tensor(tensor, lanes, dim, shares))
    return _copies(inputs, len(lanes)) if chunks is None else chunks


def scatter_kwargs(
    inputs: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    target_gpus: Sequence[DeviceLike],
    dim: int = 0,
    policy: Policy = DEFAULT_POLICY,
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Scatter positional and keyword arguments into equally many chunks; return two tuples.

    Arguments without a tensor go to as many lanes as the other arguments have chunks.
    """
    lanes = _plain_lanes(target_gpus, policy)
    return scatter_to(lanes, inputs, kwargs or {}, dim, shares_of_lanes(policy.shares, len(lanes)))


def scatter_to(
    lanes: Sequence[Lane], inputs: tuple[Any, ...], kwargs: dict[str, Any], dim: int, shares: Shares | None
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Like `scatter_kwargs`, on the streams of the lanes.

    `shares` are those of the first lanes, from `shares_of_lanes`; the others get nothing.
    """
    lanes = _used(lanes, shares)
    if len(lanes) == 1 and inputs and not kwargs and all(_is_chunk(value, lanes[0], dim) for value in inputs):
        return (tuple([value.view_as(value) for value in inputs]),), ({},)

    def cut(tensor: Tensor) -> Sequence[Tensor]:
        return cut_tensor(tensor, lanes, dim, shares)

    for value in (*inputs, *kwargs.values()):
        if not isinstance(value, _CUT_OR_SHARED):
            _check_cuttable([*inputs, *kwargs.values()], lanes, dim)
            break
    input_chunks, kwarg_chunks = _walk(inputs, cut), _walk(kwargs, cut)
    if input_chunks is None and kwarg_chunks is None:
        count = len(lanes) if inputs or kwargs else 0
    else:
        count = max(len(chunks) for chunks in (input_chunks, kwarg_chunks) if chunks is not None)
    args = _copies(inputs, count) if input_chunks is None else input_chunks
    named = _copies(kwargs, count) if kwarg_chunks is None else kwarg_chunks
    # As in stock, too few chunks are padded. A replica that gets too few arguments raises and names the missing one.
    args += [()] * (count - len(args))
    named += [{}] * (count - len(named))
    return tuple(args), tuple(dict(chunk) for chunk in named)


def chunk_weights(batch: int, devices: int | Sequence[DeviceLike], shares: Shares | None = None) -> Tensor:
    """Each chunk's part of the batch, as a vector that sums to 1.

    Raises ValueError if the batch or the number of devices is below 1, or unless there is one share for each device.

    ``(losses * chunk_weights(batch, devices)).sum()`` is the mean over the batch, where `losses` is the gathered
    vector of the replicas' mean losses. Its plain mean is right only if all chunks are equally long.
    """
    lanes = devices if isinstance(devices, int) else len(devices)
    if batch < 1 or lanes < 1:
        raise ValueError(f"batch is {batch} and devices {lanes}; both must be at least 1")
    sizes = chunk_sizes(batch, lanes, checked_shares(shares))
    return torch.tensor(sizes, dtype=torch.get_default_dtype()) / batch


def cut_tensor(tensor: Tensor, lanes: Sequence[Lane], dim: int, shares: Shares | None = None) -> list[Tensor]:
    """The chunks of one tensor, each on its lane's device."""
    if shares is None or not tensor.dim():  # a tensor without dimensions is stock's error
        chunks: Sequence[Tensor] = tensor.chunk(len(lanes), dim)
    else:
        chunks = tensor.split(chunk_sizes(tensor.size(dim), len(lanes), shares), dim)
    device = tensor.device
    is_transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    if is_transformed or device not in map(_DEVICE, lanes[: len(chunks)]):
        return send_chunks(chunks, lanes)
    # A lane may write to its chunk in place. Autograd allows that for one view, not for several of one operator, which
    # share a version counter too: after another lane's write autograd would refuse what a lane has saved. All chunks
    # have the tensor's memory still, and a write to the first one counts as one to the tensor.
    first, others = chunks[0].size(dim), chunks[1:]
    if device in map(_DEVICE, lanes[1 : len(chunks)]):
        if tensor.requires_grad:
            sizes = [chunk.size(dim) for chunk in others]
            others = tensor.narrow(dim, first, sum(sizes)).unsafe_split_with_sizes(sizes, dim)
        else:
            others = list(map(_DATA, others))
    return send_chunks([tensor.narrow(dim, 0, first), *others], lanes)


def _check_cuttable(values: Sequence[Any], lanes: Sequence[Lane], dim: int) -> None:
    for value in values:
        _check_collections(value, dim)
    if len({lane.device for lane in lanes}) < len(lanes):
        _check_objects(values, dim)


def _check_collections(value: Any, dim: int) -> None:
    if isinstance(value, PackedSequence):
        raise TypeError(
            "a PackedSequence is packed by time and cannot be cut by items; pass padded sequences and pack in forward"
        )
    if isinstance(value, dict | tuple | list):
        members = list(value.values()) if isinstance(value, dict) else value
        for member in members:
            _check_collections(member, dim)
        if fields := getattr(value, "_fields", ()):
            sizes = {
                name: member.size(dim)
                for name, member in zip(fields, members, strict=True)
                if isinstance(member, Tensor) and -member.dim() <= dim < member.dim()
            }
            if len(set(sizes.values())) > 1:
                name = type(value).__name__
                raise ValueError(f"{name}: sizes along dimension {dim} are {sizes}; its tensors are cut alike")


def _check_objects(values: Sequence[Any], dim: int) -> None:
    """Raise TypeError if an object that is not cut holds a batch, for lanes that share a device.

    What a data class or a collection holds is a batch. Any other object may hold constants. So it holds a batch if
    nothing else is cut, or if it has as many rows as what is cut.
    """
    leaves = list(_leaves(values))
    batches = {_row_count(leaf, dim) for leaf in leaves if isinstance(leaf, Tensor)}
    for leaf in leaves:
        if isinstance(leaf, _CUT_OR_SHARED):
            continue
        is_collection = dataclasses.is_dataclass(leaf) or isinstance(leaf, Mapping | UserList | deque)
        for held in _arrays_in(leaf):
            rows = _row_count(held, dim)
            is_batch = not batches or is_collection or (rows > 1 and rows in batches)
            if is_batch and math.prod(held.shape) > 1:
                raise TypeError(
                    f"a {type(leaf).__name__} is not cut, so lanes on one device would each compute its whole batch, "
                    f"here of shape {tuple(held.shape)}; pass tensors, tuples, lists or dicts"
                )


def _leaves(value: Any) -> Iterator[Any]:
    """What is in nested tuples, lists and dicts."""
    if isinstance(value, tuple | list | dict):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _leaves(member)
    else:
        yield value


def _arrays_in(value: Any) -> Iterator[Any]:
    """The tensors, and arrays of numbers, among the first `MOST_VALUES` that an object leads to."""
    seen: dict[int, Any] = {}
    ahead = [value]
    while ahead and len(seen) < MOST_VALUES:
        value = ahead.pop()
        if id(value) in seen or isinstance(value, _WITHOUT_BATCH):
            continue
        seen[id(value)] = value
        if not isinstance(value, Tensor) and not (hasattr(type(value), "__array__") and hasattr(value, "shape")):
            ahead += gc.get_referents(value)[:MOST_VALUES]  # attributes, those in slots too, or members
        elif getattr(getattr(value, "dtype", None), "kind", "f") in _NUMBERS:
            yield value


def _row_count(value: Any, dim: int) -> int:
    shape = value.shape
    return int(shape[dim]) if -len(shape) <= dim < len(shape) else 0


def _used(lanes: Sequence[Lane], shares: Shares | None) -> Sequence[Lane]:
    return lanes if shares is None else lanes[: len(shares)]


def _is_chunk(value: Any, lane: Lane, dim: int) -> bool:
    return isinstance(value, Tensor) and value.device == lane.device and -value.dim() <= dim < value.dim()


def _plain_lanes(devices: Sequence[DeviceLike], policy: Policy) -> list[Lane]:
    """Lanes on the caller's own streams; raises ValueError without a device."""
    check_policy(policy)
    if not len(devices):
        raise ValueError(f"target_gpus is {devices!r}; at least one device is needed")
    streams = SideStreams([resolve_device(device) for device in devices], policy.host_staged)
    return streams.lanes(len(devices), is_overlapped=False)


def _walk(value: Any, cut: Cutter) -> Chunks | None:
    """The value's chunks, as many as its shortest member has, as in stock; None if it holds no tensor."""
    if isinstance(value, Tensor):
        return list(cut(value))
    if isinstance(value, dict):
        pairs = _walk_members(list(value.items()), cut)
        return None if pairs is None else [type(value)(items) for items in pairs]
    if isinstance(value, tuple | list):
        members = _walk_members(value, cut)
        if members is None:
            return None
        if hasattr(value, "_fields"):  # a named tuple
            return [type(value)(*chunk) for chunk in members]
        return members if isinstance(value, tuple) else [list(chunk) for chunk in members]
    return None


def _walk_members(values: Sequence[Any], cut: Cutter) -> list[tuple[Any, ...]] | None:
    walked = [_walk(value, cut) for value in values]
    counts = [len(chunks) for chunks in walked if chunks is not None]
    if not counts:
        return None
    lanes = min(counts)
    columns = [
        _copies(value, lanes) if chunks is None else chunks[:lanes]
        for value, chunks in zip(values, walked, strict=True)
    ]
    return list(zip(*columns, strict=True))


def _copies(value: Any, count: int) -> Chunks:
    """The value once per lane, with lists and dicts of its own, since a forward may change them."""
    if not isinstance(value, tuple | list | dict) or not value:
        return [value] * count
    if isinstance(value, dict):
        made = [copy.copy(value) for _ in range(count)]  # the type's constructor may not take items (defaultdict)
        for key, member in value.items():
            for own_copy, member_copy in zip(made, _copies(member, count), strict=True):
                own_copy[key] = member_copy
        return made
    columns = list(zip(*[_copies(member, count) for member in value], strict=True))
    if isinstance(value, list):
        return [list(column) for column in columns]
    if hasattr(value, "_fields"):
        return [type(value)(*column) for column in columns]
    return columns if type(value) is tuple else [value] * count


@lru_cache(maxsize=256)
def chunk_sizes(batch: int, lanes: int, shares: Shares | None = None) -> tuple[int, ...]:
    """The number of items of each chunk, for the first lanes; they sum to `batch`.

    Equal shares give stock's chunks of ceil(batch / lanes). With other shares each of the first `batch` lanes with a
    share gets at least one item. A batch of 0 items gives each lane with a share a chunk of 0. Raises ValueError
    unless there is one share for each lane.
    """
    used = shares_of_lanes(shares, lanes) or (1.0,) * lanes
    if not batch:
        return (0,) * len(used)
    if min(used) == max(used):
        chunk = -(-batch // len(used))
        return tuple(min(chunk, batch - start) for start in range(0, batch, chunk))
    return _apportioned(batch, used[:batch])


def _apportioned(batch: int, shares: Sequence[float]) -> tuple[int, ...]:
    """The sizes by largest remainder; exact fractions make them sum to `batch`."""
    left, weights = batch, dict(enumerate(Fraction(share) for share in shares))
    sizes = [1] * len(shares)
    # A lane below one item gets one. That leaves fewer for the others, so one of them may then be below one too.
    while small := [lane for lane, weight in weights.items() if left * weight < sum(weights.values())]:
        left -= len(small)
        weights = {lane: weight for lane, weight in weights.items() if lane not in small}
    total = sum(weights.values())
    exact = {lane: left * weight / total for lane, weight in weights.items()}
    for lane, part in exact.items():
        sizes[lane] = math.floor(part)
    remainders = sorted(exact, key=lambda lane: (sizes[lane] - exact[lane], lane))
    for lane in remainders[: batch - sum(sizes)]:
        sizes[lane] += 1
    return tuple(sizes)


_SCALARS = (
    "Was asked to gather along dimension 0, but all input tensors were scalars; "
    "will instead unsqueeze and return a vector."
)


@dataclass(frozen=True)
class Target:
    """Without `nears`, copies run on the caller's own stream. So do outputs up to `small_bytes`."""

    device: torch.device
    nears: tuple[Stream, ...]
    is_staged: bool = False
    small_bytes: int = 0

    def nears_for(self, tensors: Sequence[Tensor]) -> Sequence[Stream]:
        is_small = tensors[0].nbytes <= self.small_bytes
        return () if is_small else self.nears[: len(tensors)]


def join_tensors(tensors: Sequence[Tensor], target: Target, dim: int) -> Tensor:
    """Concatenate tensors along `dim` on the target's device; differentiable to any order.

    Raises TypeError if a replica gave no tensor, and IndexError if the first tensor has no dimension `dim`.
    """
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"replica 0 gave a tensor where replica {i} gave {type(tensor).__name__}; cannot gather")
    if dim == 0 and all(tensor.dim() == 0 for tensor in tensors):
        warnings.warn(_SCALARS, stacklevel=2)
        tensors = [tensor.view(1) for tensor in tensors]
    dim = _counted_from_front(tensors[0], dim)
    if not any(is_link(target.device, tensor.device) for tensor in tensors):
        return torch.cat(list(tensors), dim)
    if torch._C._are_functorch_transforms_active():  # a transform needs operators that it knows
        return torch.cat([copy_to(tensor, target.device, target.is_staged) for tensor in tensors], dim)
    return Join.apply(target, dim, *tensors)


class Join(Function):
    """Copies every part straight to its place in the result, as soon as its lane is done.

    Producers: the current streams of the parts' devices. Consumer: the current stream of the target's device, which
    waits for the near streams.
    """

    @staticmethod
    def forward(ctx: Any, target: Target, dim: int, *tensors: Tensor) -> Tensor:
        _check_sizes(tensors, dim)
        ctx.target, ctx.dim = target, dim
        ctx.sizes = [tensor.size(dim) for tensor in tensors]
        ctx.devices = [tensor.device for tensor in tensors]
        joined = _empty_for(tensors, sum(ctx.sizes), dim, target.device)
        parts = joined.split(ctx.sizes, dim)
        here = current_stream(target.device)
        nears = ctx.nears = target.nears_for(tensors)
        try:
            fork(here, nears)
            for part, tensor, near in zip(parts, tensors, cycle(nears or [here]), strict=False):
                with use_stream(target.device, near):
                    copy_into(part, tensor, target.is_staged)
        finally:  # after an error too, because the memory of the copies that were made is free then
            for near in nears:
                wait_stream(here, near)
        return joined

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        target = ctx.target
        grads = []
        parts = grad.split(ctx.sizes, ctx.dim)
        here = current_stream(target.device)
        try:
            fork(here, ctx.nears)
            for part, device, near in zip(parts, ctx.devices, cycle(ctx.nears or [here]), strict=False):
                with use_stream(target.device, near):
                    grads.append(copy_to(part, device, target.is_staged) if is_link(target.device, device) else part)
        finally:
            for near in ctx.nears:
                wait_stream(here, near)
        return (None, None, *grads)


def _counted_from_front(first: Tensor, dim: int) -> int:
    index = dim if dim >= 0 else dim + first.dim()
    if not 0 <= index < first.dim():
        raise IndexError(f"Dimension out of range: cannot gather tensors of {first.dim()} dimensions along {dim}")
    return index


def _check_sizes(tensors: Sequence[Tensor], dim: int) -> None:
    first = tensors[0]
    for tensor in tensors:
        expected = list(first.shape)
        if tensor.dim() == first.dim():
            expected[dim] = tensor.size(dim)
        if list(tensor.shape) != expected:
            raise RuntimeError(
                f"Gather got an input of invalid size: got {list(tensor.shape)}, but expected {expected}"
            )


def _empty_for(tensors: Sequence[Tensor], size: int, dim: int, device: torch.device) -> Tensor:
    shape = list(tensors[0].shape)
    shape[dim] = size
    dtype = reduce(torch.promote_types, [tensor.dtype for tensor in tensors])
    is_last = all(t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last) for t in tensors)
    memory_format = torch.channels_last if is_last else torch.contiguous_format
    return torch.empty(shape, dtype=dtype, device=device, memory_format=memory_format)


_MINUS_ONE = (
    'Using -1 to represent CPU tensor is deprecated. Please use a device object or string instead, e.g., "cpu".'
)


def gather(outputs: Any, target_device: DeviceLike, dim: int = 0, policy: Policy = DEFAULT_POLICY) -> Any:
    """Gather outputs to one value of the form of ``outputs[0]``.

    Tensors are concatenated along `dim` on `target_device`. 0-dim tensors become a vector, with the stock warning.
    Dicts, named tuples, tuples, lists and dataclasses are gathered member by member. So are other collections that
    their type can make from an iterable of members. None stays None. Anything else becomes a list with one entry per
    replica. Raises ValueError without outputs.
    """
    check_policy(policy)
    return gather_to(Target(resolve_target(target_device), (), policy.host_staged), outputs, dim)


def resolve_target(device: DeviceLike) -> torch.device:
    """Like `resolve_device`, but ``-1`` gives the stock warning, as at each gather of stock."""
    if device == -1:
        warnings.warn(_MINUS_ONE, FutureWarning, stacklevel=3)
    return resolve_device(device)


def gather_to(target: Target, outputs: Sequence[Any], dim: int) -> Any:
    if not len(outputs):
        raise ValueError(f"outputs is {outputs!r}; the output of at least one replica is needed")
    return _gather(list(outputs), target, dim)


def _gather(outputs: list[Any], target: Target, dim: int) -> Any:
    first = outputs[0]
    if isinstance(first, Tensor):
        return join_tensors(outputs, target, dim)
    if isinstance(first, PackedSequence):
        raise TypeError("a PackedSequence is packed by time and cannot be gathered by items; return padded sequences")
    if isinstance(first, dict):
        _check_alike(outputs, dict)
        return _gather_items(outputs, target, dim)
    if isinstance(first, tuple | list) and not isinstance(first, torch.Size):
        _check_alike(outputs, tuple | list)
        if len({len(output) for output in outputs}) > 1:
            raise ValueError(
                f"the replicas gave {', '.join([str(len(output)) for output in outputs])} values in a "
                f"{type(first).__name__}, which zip() cannot pair. Lists with an entry for each item, as of detection "
                "models, are not gathered; return padded tensors"
            )
        make: Callable[[list[Any]], Any] = getattr(first, "_make", type(first))  # a named tuple has _make
        return make([_gather(list(members), target, dim) for members in zip(*outputs, strict=True)])
    if dataclasses.is_dataclass(first):
        _check_alike(outputs, type(first))
        return _gather_fields(outputs, target, dim)
    if first is not None and _is_collection(first):
        return _gather_collection(outputs, target, dim)
    return None if first is None else outputs


def _is_collection(value: Any) -> bool:
    """Whether the value is an ordered iterable with tensors, no iterator or array."""
    if not isinstance(value, Iterable) or isinstance(value, Iterator | Set) or hasattr(value, "__array__"):
        return False
    return any(isinstance(leaf, Tensor) for leaf in tree_leaves(list(value)))


def _gather_collection(outputs: list[Any], target: Target, dim: int) -> Any:
    """Gather a collection such as a deque or transformers' caches; the outputs if its constructor refuses members."""
    _check_alike(outputs, type(outputs[0]))
    members = [_gather(list(column), target, dim) for column in zip(*outputs, strict=True)]
    try:
        return type(outputs[0])(members)
    except (TypeError, AttributeError):  # the constructor takes other arguments
        return outputs


def _check_alike(outputs: list[Any], kind: Any) -> None:
    for i, output in enumerate(outputs):
        if not isinstance(output, kind):
            first_type, other = type(outputs[0]).__name__, type(output).__name__
            raise TypeError(f"replica 0 gave a {first_type} where replica {i} gave {other}; cannot gather")


def _gather_items(outputs: list[Any], target: Target, dim: int) -> Any:
    first = outputs[0]
    if not all(len(first) == len(output) for output in outputs):
        raise ValueError("All dicts must have the same number of keys")
    for i, output in enumerate(outputs):
        if first.keys() != output.keys():
            first_keys, other = list(first), list(output)
            raise ValueError(f"replica 0 gave the keys {first_keys} where replica {i} gave {other}; cannot gather")
    gathered = copy.copy(first)  # the type's constructor may not take items; that of defaultdict does not
    for key in first:
        gathered[key] = _gather([output[key] for output in outputs], target, dim)
    return gathered


def _gather_fields(outputs: list[Any], target: Target, dim: int) -> Any:
    gathered = copy.copy(outputs[0])
    for field in dataclasses.fields(gathered):
        values = [getattr(output, field.name) for output in outputs]
        # Without __init__, and though the dataclass may be frozen: __post_init__ has already run in each replica.
        object.__setattr__(gathered, field.name, _gather(values, target, dim))
    return gathered
