"""Better than stock: the first error is raised, the next forward works. Threads and forwards may share a wrapper."""

import contextlib
import copy

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy
from tests.parallel.models import Call, mlp
from tests.parallel.on_lanes import FIRST, KIND, LANES, assert_close, no_warnings, run_at_once, sets_of, wrap

NAMES = ["cpu"] * LANES if KIND == "cpu" else range(LANES)
"""How errors name the devices."""


def failing_on(chunks):
    def forward(self, x):
        if int(x[0]) in chunks:
            raise KeyError(f"chunk {int(x[0])}")
        return x

    return forward


def test_b8_the_first_error_is_raised_with_the_others_as_notes(dispatch):
    wrapper = wrap(Call(failing_on({1, 2})), dispatch=dispatch)
    with pytest.raises(KeyError) as caught:
        wrapper(torch.arange(4.0))
    assert f"Caught KeyError in replica 1 on device {NAMES[1]}.\nOriginal Traceback" in str(caught.value.args[0])
    assert "chunk 1" in str(caught.value.args[0])
    (note,) = caught.value.__notes__
    assert note.startswith(f"Also caught KeyError in replica 2 on device {NAMES[2]}")
    assert "chunk 2" in note


def test_b8_a_failed_forward_does_not_break_the_next(dispatch):
    wrapper = wrap(Call(failing_on({1})), dispatch=dispatch)
    for _ in range(3):
        with pytest.raises(KeyError):
            wrapper(torch.arange(4.0))
        assert_close(wrapper(torch.zeros(4)), torch.zeros(4))


def test_b8_a_failed_forwards_attributes_do_not_stay(dispatch):
    seen = []

    def forward(self, x):
        seen.append(hasattr(self, "mark"))
        self.mark = True
        if int(x[0]) == 1:
            raise KeyError
        return x

    wrapper = wrap(Call(forward), dispatch=dispatch)
    for x in (torch.arange(4.0), torch.zeros(4)):
        with contextlib.suppress(KeyError):
            wrapper(x)
    assert seen == [False] * 8


def test_b8_an_interrupt_goes_through(dispatch):
    def forward(self, x):
        if int(x[0]) == 1:
            raise KeyboardInterrupt
        return x

    wrapper = wrap(Call(forward), dispatch=dispatch)
    with pytest.raises(KeyboardInterrupt):
        wrapper(torch.arange(4.0))
    assert_close(wrapper(torch.zeros(4)), torch.zeros(4))


@pytest.mark.parametrize("is_cached", [True, False])
def test_b8_one_wrapper_may_be_used_by_many_threads(is_cached, dispatch):
    base = mlp()
    wrapper = wrap(base, dispatch=dispatch, cache_replicas=is_cached)
    wrong = []

    def use(seed):
        x = torch.randn(8, 5, generator=torch.Generator().manual_seed(seed))
        for _ in range(20 if KIND == "cpu" else 3):
            try:
                assert_close(wrapper(x), base(x.to(FIRST)))
            except Exception as error:
                wrong.append(error)

    run_at_once(use, range(4))
    assert not wrong


def test_b8_a_wrapper_may_call_itself(dispatch):
    def forward(self, x):
        return self.inner(x) if len(x) == 1 else wrapper(x)

    wrapper = wrap(Call(forward, inner=nn.Linear(2, 2)), 3, dispatch=dispatch)
    x = torch.randn(9, 2)
    for _ in range(3):  # a pool given back too early would serve both forwards and wait for itself
        assert_close(wrapper(x), wrapper.module.inner(x))


def test_b8_a_nested_wrapper_runs_the_outer_replicas_module():
    def forward(self, x):
        self.inner.module.factor = float(x[0])
        return self.inner(x)

    inner = wrap(Call(lambda self, x: x * self.factor, factor=0), 2)
    inner(torch.ones(2))
    outer = wrap(Call(forward, inner=inner), 3)
    for _ in range(3):
        assert outer(torch.tensor([1.0, 1, 2, 2, 3, 3])).tolist() == [1, 1, 4, 4, 9, 9]
    assert len(sets_of(outer)) == 1


@pytest.mark.parametrize("inner", ["sequence", "threads", "auto"])
def test_b8_wrappers_may_be_nested(inner, dispatch):
    base, x = mlp(), torch.randn(8, 5)
    expected = copy.deepcopy(base)
    base.to(FIRST)[0] = wrap(base[0], 2, dispatch=inner)
    outer = DataParallel(base, [FIRST] * 2, policy=Policy(dispatch=dispatch))
    for _ in range(3):
        outer.zero_grad()
        with no_warnings():  # of lanes that had to be rescued
            outer(x).sum().backward()
    expected(x).sum().backward()
    for ours, theirs in zip(outer.parameters(), expected.parameters(), strict=True):
        assert_close(ours.grad, theirs.grad)
