"""Cut a batch into chunks, one per lane.

Autograd's own nodes are the adjoint: they join the chunks' gradients.
"""

import copy
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from dpbench.parallel.devices import DeviceLike, resolve_device
from dpbench.parallel.lanes import Lane, SideStreams
from dpbench.parallel.policy import DEFAULT_POLICY, Policy, Shares, check_policy, checked_shares, shares_of_lanes
from dpbench.parallel.transfer import send

Chunks = list[Any]
Cut = Callable[[Tensor], Sequence[Tensor]]


def scatter(inputs: Any, target_gpus: Sequence[DeviceLike], dim: int = 0, policy: Policy = DEFAULT_POLICY) -> Any:
    """Slice tensors along `dim` into chunks of ceil(size / devices), one per device.

    There are fewer chunks if the batch is short. `Policy.shares` gives other sizes (`chunk_sizes`). Raises
    ValueError unless there is one share for each device.

    Tuples, named tuples, lists and dicts are searched for tensors, unless they are empty. Every device gets the same
    reference to any other object. Returns a tuple for a tensor, a list for anything else. A chunk that is already on
    its device is a view.
    """
    all_lanes = _plain_lanes(target_gpus, policy)
    shares = shares_of_lanes(policy.shares, len(all_lanes))
    lanes = _used(all_lanes, shares)
    if isinstance(inputs, Tensor):
        return tuple(cut_tensor(inputs, lanes, dim, shares))
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

    Arguments without a tensor go to as many lanes as the other arguments have chunks. So a constant can go with a
    batch that is smaller than the number of devices.
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

    `shares` are those of `Policy.shares`. Raises ValueError if the batch or the number of devices is below 1, or unless
    there is one share for each device.

    ``(losses * chunk_weights(batch, devices)).sum()`` is the mean over the batch, where `losses` is the gathered
    vector of the replicas' mean losses. Its plain mean is right only if all chunks are equally long. Those of 9 items
    on 2 devices are not.
    """
    lanes = devices if isinstance(devices, int) else len(devices)
    if batch < 1 or lanes < 1:
        raise ValueError(f"batch is {batch} and devices {lanes}; both must be at least 1")
    sizes = chunk_sizes(batch, lanes, checked_shares(shares))
    return torch.tensor(sizes, dtype=torch.get_default_dtype()) / batch


def cut_tensor(tensor: Tensor, lanes: Sequence[Lane], dim: int, shares: Shares | None = None) -> list[Tensor]:
    """The chunks of one tensor, each on its lane's device; equal ones without `shares`."""
    if shares is None or not tensor.dim():  # a tensor without dimensions is stock's error
        chunks = tensor.chunk(len(lanes), dim)
    else:
        chunks = tensor.split(chunk_sizes(tensor.size(dim), len(lanes), shares), dim)
    return [send(chunk, lane, lanes[0].device) for chunk, lane in zip(chunks, lanes, strict=False)]


def _used(lanes: Sequence[Lane], shares: Shares | None) -> Sequence[Lane]:
    """The lanes that get items."""
    return lanes if shares is None else lanes[: len(shares)]


def _is_chunk(value: Any, lane: Lane, dim: int) -> bool:
    """Whether the value is a tensor that a single lane can take as it is."""
    return isinstance(value, Tensor) and value.device == lane.device and -value.dim() <= dim < value.dim()


def _plain_lanes(devices: Sequence[DeviceLike], policy: Policy) -> list[Lane]:
    """Lanes on the caller's own streams. Raises ValueError if there is no device."""
    check_policy(policy)
    if not len(devices):
        raise ValueError(f"target_gpus is {devices!r}; at least one device is needed")
    streams = SideStreams([resolve_device(device) for device in devices], policy.host_staged)
    return streams.lanes(len(devices), is_overlapped=False)


def _walk(value: Any, cut: Cut) -> Chunks | None:
    """The value's chunks, or None if it holds no tensor.

    Members with different numbers of chunks are cut to the shortest, as in stock.
    """
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


def _walk_members(values: Sequence[Any], cut: Cut) -> list[tuple[Any, ...]] | None:
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
    """A value without tensors, once per lane.

    Each lane gets its own lists and dicts, since a forward may change them.
    """
    if not isinstance(value, tuple | list | dict) or not value:
        return [value] * count
    if isinstance(value, dict):
        made = [copy.copy(value) for _ in range(count)]  # the type's constructor may not take items (defaultdict)
        for key, member in value.items():
            for own, member_copy in zip(made, _copies(member, count), strict=True):
                own[key] = member_copy
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

    Equal shares give stock's chunks of ceil(batch / lanes). There are fewer chunks than lanes if the batch is short,
    or if shares at the end are 0. With other shares each of the first `batch` lanes with a share gets at least one
    item, however small its share is. A batch of 0 items gives each of these lanes a chunk of 0. Raises ValueError
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
    """The sizes by largest remainder, each at least 1. Fractions are exact, so the sizes sum to `batch`."""
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
