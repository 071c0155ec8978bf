import pytest
import torch
from torch._utils import _take_tensors

from dpbench.variants.naive import LIMIT_BYTES, broadcast_groups, reduction_groups


@pytest.mark.parametrize(
    ("sizes", "broadcast", "reduction"),
    [
        ([], [], []),
        ([3], [[0]], [[0]]),
        ([0], [[0]], [[0]]),
        ([4, 4, 4], [[0, 1, 2]], [[0, 1], [2]]),
        ([5, 5, 1], [[0, 1], [2]], [[0, 1], [2]]),
        ([4, 6, 1, 9, 1], [[0, 1], [2, 3], [4]], [[0, 1], [2, 3], [4]]),
        ([4, 7, 3], [[0, 1], [2]], [[0], [1, 2]]),
        ([30, 1, 30], [[0], [1, 2]], [[0], [1], [2]]),
        ([0, 30, 1], [[0, 1], [2]], [[0, 1], [2]]),
        ([9, 9, 9], [[0, 1], [2]], [[0], [1], [2]]),
    ],
)
def test_broadcast_and_reduction_cut_differently_at_a_limit_of_ten_bytes(sizes, broadcast, reduction):
    items = [("float32", size) for size in sizes]
    assert broadcast_groups(items, 10) == broadcast
    assert reduction_groups(items, 10) == reduction


@pytest.mark.parametrize("group", [broadcast_groups, reduction_groups])
def test_a_message_holds_one_kind_of_tensor(group):
    items = [("a", 6), ("b", 6), ("a", 4), ("b", 1), ("a", 1), ("b", 1)]
    assert sorted(group(items, 10)) == [[0, 2], [1, 3, 5], [4]]


def test_the_limit_is_ten_mebibytes():
    assert LIMIT_BYTES == 10_485_760


def test_reduction_groups_are_those_of_torch():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        tensors = [
            torch.empty(int(n), dtype=torch.float32 if n % 3 else torch.float64)
            for n in torch.randint(0, 40, (30,), generator=generator)
        ]
        position = {id(t): i for i, t in enumerate(tensors)}
        items = [(t.dtype, t.numel() * t.element_size()) for t in tensors]
        stock = [[position[id(t)] for t in chunk] for chunk in _take_tensors(tensors, 200)]
        assert sorted(reduction_groups(items, 200)) == sorted(stock)
