"""Wrappers on four CPU lanes, in sequence unless told, and a look at the sets they keep."""

import torch

from dpbench.parallel import DataParallel, Policy

LANES = 4


def wrap(base, **policy):
    return DataParallel(base, ["cpu"] * LANES, policy=Policy(**{"dispatch": "sequence", **policy}))


def sets_of(wrapper):
    return wrapper._replicas._sets


def train(wrapper, steps):
    for _ in range(steps):
        wrapper.zero_grad()
        wrapper(torch.randn(8, 5)).square().sum().backward()
