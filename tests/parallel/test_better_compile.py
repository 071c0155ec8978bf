"""Better than stock: compiled modules, and a compiled wrapper, give right results and stay whole."""

import copy

import pytest
import torch

from tests.parallel.models import Call, mlp
from tests.parallel.on_lanes import FIRST, LANES, assert_close, wrap


@pytest.mark.filterwarnings("ignore:the replicas of a compiled module")
@pytest.mark.parametrize("kind", ["wrapped", "in place", "child"])
def test_b3_compiled_modules_give_right_results_and_are_not_destroyed(kind, dispatch):
    base = mlp()
    expected, x = copy.deepcopy(base), torch.randn(8, 5)
    base.to(FIRST)
    module = base
    if kind == "wrapped":
        module = torch.compile(base, backend="eager")
    elif kind == "in place":
        base.compile(backend="eager")
    else:
        base[0] = torch.compile(base[0], backend="eager")
    names = [name for name, _ in module.named_parameters()]
    wrapper = wrap(module, dispatch=dispatch)
    expected(x).sum().backward()
    for _ in range(2):
        module.zero_grad()
        wrapper(x).sum().backward()
        assert [name for name, _ in module.named_parameters()] == names
        for ours, theirs in zip(module.parameters(), expected.parameters(), strict=True):
            assert_close(ours.grad, theirs.grad)
    with torch.no_grad():
        base[2].weight.mul_(2)  # replicas must not use old weights of the compiled base
        assert_close(wrapper(x), module(x.to(FIRST)))


@pytest.mark.parametrize("kind", ["wrapper", "step"])
def test_b3_a_compiled_wrapper_or_step_gives_right_results(kind, dispatch):
    base, x = mlp().to(FIRST), torch.randn(8, 5, device=FIRST)
    wrapper = wrap(base, dispatch=dispatch)
    call = wrapper if kind == "wrapper" else lambda x: wrapper(x) * 1
    compiled = torch.compile(call, backend="aot_eager")
    want = torch.autograd.grad(base(x).square().sum(), list(base.parameters()))
    for _ in range(2):
        got = torch.autograd.grad(compiled(x).square().sum(), list(base.parameters()))
        assert_close(got, want)
        assert len(wrapper._replicas.sets) == 1


@pytest.mark.filterwarnings("ignore:the replicas of a compiled module")
def test_b3_a_module_compiled_in_place_runs_as_its_replica():
    seen = []

    def forward(self, x):
        seen.append("_is_replica" in self.__dict__)
        return x

    base = Call(forward)
    wrapper = wrap(base)
    wrapper(torch.ones(LANES))
    base.compile(backend="eager")  # after the first forward too
    wrapper(torch.ones(LANES))
    assert seen == [True] * (2 * LANES)


@pytest.mark.filterwarnings("ignore:the replicas of a compiled module")
def test_b3_the_module_in_a_compiled_module_runs_as_its_replica():
    seen = []
    base = Call(lambda self, x: seen.append("_is_replica" in vars(self)) or x)
    wrap(torch.compile(base, backend="eager"))(torch.ones(LANES))
    assert seen == [True] * LANES


def test_b3_running_eagerly_is_warned_of():
    wrapper = wrap(torch.compile(mlp(), backend="eager"))
    with pytest.warns(UserWarning, match="replicas of a compiled module run it eagerly"):
        wrapper(torch.randn(8, 5))
