"""Steps with `accumulate` and without, on lanes that take the paths of several devices, and their comparison."""

import copy

import torch

from tests.parallel.oracle import assert_grads, grads_of


def loss_of(model, x, **options):
    return model(x, **options).square().sum()


def batch(size=8):
    return torch.randn(size, 5, dtype=torch.double)


def accumulate(wrapper, batches):
    for x in batches[:-1]:
        with wrapper.accumulate():
            loss_of(wrapper, x).backward()
    loss_of(wrapper, batches[-1]).backward()


def plainly(base, batches):
    for x in batches:
        loss_of(base, x).backward()


def assert_equal_grads(base, other):
    assert_grads(base, grads_of(other), atol=1e-12, rtol=1e-12)


def is_empty(wrapper):
    return not wrapper._accumulation.sums.buckets


def assert_next_step_is_right(wrapper):
    """Zero the gradients, accumulate anew, and compare."""
    bare = copy.deepcopy(wrapper.module)
    wrapper.zero_grad()
    bare.zero_grad()
    batches = [batch() for _ in range(3)]
    accumulate(wrapper, batches)
    plainly(bare, batches)
    assert_equal_grads(wrapper.module, bare)
    assert is_empty(wrapper)
