"""Runs for the tests of races.

The simulator raises RaceError if bytes are read and written in no defined order.
"""

import copy

import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy
from tests.parallel.models import Call
from tests.parallel.oracle import Chunked

DEVICES = [f"sim:{i}" for i in range(4)]
SMALL = {"bucket_bytes": 200, "first_bucket_bytes": 64, "dispatch": "sequence"}

POLICIES = {
    "default": Policy(dispatch="sequence"),
    "threads": Policy(dispatch="threads"),
    "small buckets": Policy(**SMALL),
    "small buckets, threads": Policy(**{**SMALL, "dispatch": "threads"}),
    "one tensor a bucket": Policy(coalesce=False, dispatch="sequence"),
    "no overlap": Policy(overlap_broadcast=False, overlap_reduce=False, overlap_copies=False),
    "only broadcast": Policy(**SMALL, overlap_reduce=False, overlap_copies=False),
    "only reduce": Policy(**SMALL, overlap_broadcast=False, overlap_copies=False),
    "only copies": Policy(**SMALL, overlap_broadcast=False, overlap_reduce=False),
    "skip unchanged": Policy(**SMALL, skip_unchanged=True),
    "nothing cached": Policy(**SMALL, cache_replicas=False),
    "host staged": Policy(**SMALL, host_staged=True),
}

PLACES = {
    "host": lambda x: x,
    "first device": lambda x: x.to("sim:0"),
    "last device": lambda x: x.to("sim:3"),
    "with grad": lambda x: x.to("sim:0").requires_grad_() if x.is_floating_point() else x,
}


def train(make, policy, place, make_input, *, steps=2, devices=DEVICES):
    """Train a wrapper and the chunked module; assert equal values; return the wrapper.

    The values are outputs and gradients. The optimizer changes the weights in each step.
    """
    torch.manual_seed(1)
    base = make()
    expected = Chunked(copy.deepcopy(base), len(devices), shares=policy.shares)
    base.to(devices[0])
    wrapper = DataParallel(base, devices, policy=policy)
    ours = torch.optim.SGD(base.parameters(), lr=0.01)
    theirs = torch.optim.SGD(expected.base.parameters(), lr=0.01)
    for _ in range(steps):
        x = make_input()
        ours.zero_grad()
        theirs.zero_grad()
        got, want = wrapper(place(x)), expected(x)
        torch.testing.assert_close(got.cpu(), want, atol=1e-5, rtol=1e-4)
        got.square().sum().backward()
        want.square().sum().backward()
        for (name, parameter), other in zip(base.named_parameters(), expected.base.parameters(), strict=True):
            other.grad = expected.grads()[name]
            torch.testing.assert_close(parameter.grad.cpu(), other.grad, atol=1e-4, rtol=1e-3)
        ours.step()
        theirs.step()
    return wrapper


def train_sparsely(policy, source="cpu"):
    """Train with sparse gradients.

    An input from another device may get the memory of a gradient that the engine has cloned on the hub.
    """
    base = nn.Embedding(11, 4, sparse=True).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=policy)
    optimizer = torch.optim.SGD(base.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        wrapper(torch.randint(11, (8, 3)).to(source)).sum().backward()
        assert base.weight.grad.is_sparse
        optimizer.step()


def reads_without_output():
    def forward(self, x):
        self.layer(x)  # no output, so no stream waits for this read

    return Call(forward, layer=nn.Linear(20, 20)).to("sim:0")


def layers(count):
    base = nn.Sequential(*[nn.Linear(5, 5) for _ in range(count)]).to("sim:0")
    torch.sim.synchronize("sim:0")
    return base


def steps(wrapper, make_input=lambda: torch.randn(8, 20), is_training=True):
    for _ in range(4):
        out = wrapper(make_input())
        if is_training:
            out.sum().backward()
        with torch.no_grad():
            for parameter in wrapper.parameters():
                parameter.add_(1)
