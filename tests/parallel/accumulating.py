"""Steps with `accumulate` and without, on CPU lanes, and their comparison."""

import copy

import torch

from dpbench.parallel import DataParallel, Policy

LANES = 4


def wrap(base, lanes=LANES, **policy):
    return DataParallel(base, ["cpu"] * lanes, policy=Policy(**{"dispatch": "sequence", **policy}))


def loss_of(wrapper, x):
    return wrapper(x).square().sum()


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
    for (name, one), two in zip(base.named_parameters(), other.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None), name
        if two.grad is not None:
            torch.testing.assert_close(one.grad, two.grad, atol=1e-12, rtol=1e-12, msg=lambda text, n=name: n + text)


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


def either(self, x, use):
    return self.first(x) if use == "first" else self.second(x)
