"""Which tensors the stock wrapper sends in one message. Its two directions cut at the limit differently."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

LIMIT_BYTES = 10 * 2**20
"""The default of `broadcast_coalesced` and `reduce_add_coalesced`, torch/nn/parallel/comm.py."""

Item = tuple[Hashable, int]
"""A tensor's kind, of which a message has one, and its bytes."""


def broadcast_groups(items: Sequence[Item], limit_bytes: int = LIMIT_BYTES) -> list[list[int]]:
    """Positions in `items`, message by message: one is sent as soon as it *reaches* the limit.

    `take_tensors` in torch/csrc/utils/tensor_flatten.cpp; compiled from torch 2.13.0, it cut 600 random lists alike.
    A message exceeds the limit by less than its last tensor.
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
    """Positions in `items`, message by message: one is sent before it would *exceed* the limit.

    `_take_tensors` in torch/_utils.py. Only a tensor over the limit makes a message over it.
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
