"""All combinations of techniques give the same numbers."""

import copy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpbench.parallel import DataParallel, Policy
from tests.parallel.oracle import Chunked
from tests.sampling import runs_everything

policies = st.builds(
    Policy,
    cache_replicas=st.booleans(),
    coalesce=st.booleans(),
    bucket_bytes=st.sampled_from([1, 100, 400, 10_000]),
    first_bucket_bytes=st.sampled_from([1, 50, 10_000]),
    overlap_broadcast=st.booleans(),
    overlap_reduce=st.booleans(),
    overlap_copies=st.booleans(),
    skip_unchanged=st.booleans(),
    host_staged=st.booleans(),
    dispatch=st.sampled_from(["sequence", "threads", "auto"]),
    route=st.sampled_from(["auto", "star", "chain"]),
)


class Mixed(nn.Module):
    """Several dtypes, a frozen and a tied parameter, buffers of two kinds."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.wide = nn.Linear(6, 4, dtype=torch.double)
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)
        self.tied = self.inner.bias

    def forward(self, x):
        x = self.norm(self.inner(x)) + self.tied
        return self.wide(x.double()).float() * self.frozen


@settings(max_examples=40 if runs_everything() else 15, deadline=None)
@given(
    policy=policies, batches=st.lists(st.sampled_from([8, 11, 12, 14]), min_size=1, max_size=3), lanes=st.integers(1, 4)
)
def test_every_policy_trains_alike(policy, batches, lanes):
    torch.manual_seed(0)
    base = Mixed()
    expected = Chunked(copy.deepcopy(base), lanes)
    wrapper = DataParallel(base, ["cpu"] * lanes, policy=policy)
    ours = torch.optim.SGD([p for p in base.parameters() if p.requires_grad], lr=0.05)
    theirs = torch.optim.SGD([p for p in expected.base.parameters() if p.requires_grad], lr=0.05)
    for batch in batches:
        x = torch.randn(batch, 4)
        torch.testing.assert_close(wrapper(x), expected(x), atol=1e-5, rtol=1e-4)
        ours.zero_grad()
        theirs.zero_grad()
        wrapper(x).square().sum().backward()
        expected(x).square().sum().backward()
        grads = {n: g for n, g in expected.grads().items() if g is not None}
        base.frozen.grad = None
        assert_grads_of_trained(base, grads)
        for name, parameter in expected.base.named_parameters():
            if name != "frozen":
                parameter.grad = grads[name]
        ours.step()
        theirs.step()


def assert_grads_of_trained(base, grads):
    for name, grad in grads.items():
        torch.testing.assert_close(base.get_parameter(name).grad, grad, atol=1e-4, rtol=1e-3)
