"""A training loop allocates no memory that stays."""

import ctypes
import gc
import weakref

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy
from tests.parallel.models import Call, mlp

SIZE = ctypes.c_size_t


class Malloc(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [("a", SIZE * 4), ("hblkhd", SIZE), ("b", SIZE * 2), ("uordblks", SIZE), ("c", SIZE * 2)]


def in_use_bytes():
    """Bytes that C and C++ code has allocated and not freed, with tensors; 0 without glibc."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return 0
    ask.restype = Malloc
    answer = ask()
    return answer.uordblks + answer.hblkhd


def test_memory_stays_flat_over_a_thousand_steps(dispatch):
    wrapper = DataParallel(mlp(), ["cpu"] * 4, policy=Policy(dispatch=dispatch))

    def train(steps):
        for _ in range(steps):
            wrapper.zero_grad()
            wrapper(torch.randn(8, 5)).square().sum().backward()
        gc.collect()
        return len(gc.get_objects()), in_use_bytes()

    objects, bytes_before = train(50)
    objects_after, bytes_after = train(1000)
    assert objects_after <= objects + 20
    assert bytes_after <= bytes_before + 50_000  # threads have caches; a leak of 50 bytes a step fails


@pytest.mark.parametrize("is_training", [True, False])
def test_no_tensor_of_a_forward_outlives_it(is_training):
    seen = []

    def forward(self, x):
        seen.append(weakref.ref(self.weight))
        return x * self.weight

    base = Call(forward, weight=nn.Parameter(torch.ones(1)))
    wrapper = DataParallel(base, ["cpu"] * 3, policy=Policy(dispatch="sequence"))
    with torch.set_grad_enabled(is_training):
        out = wrapper(torch.ones(6))
    del out
    assert [weight() for weight in seen if weight() is not base.weight] == [None] * (3 if is_training else 2)
