"""B8: many threads, its own forward and an outer wrapper may call a wrapper."""

import copy
import threading

import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy
from tests.parallel.models import Call, mlp
from tests.parallel.three_lanes import LANES, wrapped


def test_b8_one_wrapper_may_be_used_by_many_threads(dispatch):
    base = mlp()
    wrapper = DataParallel(base, ["cpu"] * LANES, policy=Policy(dispatch=dispatch))
    wrong = []

    def use(seed):
        x = torch.randn(6, 5, generator=torch.Generator().manual_seed(seed))
        for _ in range(20):
            if not torch.allclose(wrapper(x), base(x), atol=1e-6):
                wrong.append(seed)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_b8_a_wrapper_may_call_itself(dispatch):
    def forward(self, x):
        return self.inner(x) if len(x) == 1 else wrapper(x)

    wrapper = wrapped(forward, dispatch, inner=nn.Linear(2, 2))
    x = torch.randn(9, 2)
    for _ in range(3):  # a pool given back too early would serve both forwards and wait for itself
        torch.testing.assert_close(wrapper(x), wrapper.module.inner(x))


def test_b8_a_nested_wrapper_runs_the_outer_replicas_module():
    def forward(self, x):
        self.inner.module.factor = float(x[0])
        return self.inner(x)

    inner = DataParallel(Call(lambda self, x: x * self.factor, factor=0), ["cpu"] * 2)
    inner(torch.ones(2))
    outer = wrapped(forward, "sequence", inner=inner)
    for _ in range(3):
        assert outer(torch.tensor([1.0, 1, 2, 2, 3, 3])).tolist() == [1, 1, 4, 4, 9, 9]
    assert len(outer._replicas._sets) == 1


def test_b8_wrappers_may_be_nested(dispatch):
    policy = Policy(dispatch=dispatch)
    base = mlp()
    expected = copy.deepcopy(base)
    base[0] = DataParallel(base[0], ["cpu"] * 2, policy=policy)
    outer = DataParallel(base, ["cpu"] * 2, policy=policy)
    x = torch.randn(8, 5)
    for _ in range(3):
        outer.zero_grad()
        outer(x).sum().backward()
    expected(x).sum().backward()
    for ours, theirs in zip(outer.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
