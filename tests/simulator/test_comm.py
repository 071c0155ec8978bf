"""The tensors that a coalesced broadcast puts into one message."""

from random import Random

import torch

from dpbench.simulator.comm import _take_tensors
from dpbench.variants.naive import broadcast_groups


def test_messages_are_cut_as_the_naive_variant_cuts_them():
    random = Random(0)
    for _ in range(50):
        dtypes = [random.choice([torch.float32, torch.int64]) for _ in range(12)]
        tensors = [torch.empty(random.choice([0, 1, 3, 8, 20]), dtype=dtype) for dtype in dtypes]
        items = [(tensor.dtype, tensor.nbytes) for tensor in tensors]
        taken = _take_tensors(tensors, 64)
        expected = [[tensors[i] for i in group] for group in broadcast_groups(items, 64)]
        assert [list(map(id, group)) for group in taken] == [list(map(id, group)) for group in expected]


def test_a_message_is_sent_as_soon_as_it_reaches_the_limit():
    tensors = [torch.empty(items) for items in (3, 1, 2, 7)]
    assert [[len(t) for t in group] for group in _take_tensors(tensors, 16)] == [[3, 1], [2, 7]]
