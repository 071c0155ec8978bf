"""Lanes that share a random generator draw from it in their order, or the user is warned."""

import random
import time

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dpbench.parallel import dispatch as dispatcher
from dpbench.parallel import parallel_apply
from dpbench.parallel.dispatch import TRIES
from dpbench.parallel.thread_state import ThreadHazards
from tests.parallel.models import Call, mlp
from tests.parallel.on_lanes import assert_leaves_threads, no_warnings, wrap
from tests.sampling import runs_everything

STEPS = 2 * TRIES + 4
WARNING = r'random numbers were drawn .* of cpu,.*Policy\(dispatch="sequence"\)'


def noisy():
    return nn.Sequential(nn.Linear(5, 64), nn.Dropout(0.5), nn.Linear(64, 3), nn.Dropout(0.5))


@pytest.mark.parametrize("dispatch", ["sequence", "auto"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_in_a_replica_draws_again_what_its_forward_drew(reentrant, dispatch):
    def dropped(x):
        time.sleep(0.002 * random.random())  # so that on threads any lane may be the first
        return nn.functional.dropout(x)

    wrapper = wrap(Call(lambda self, x: checkpoint(dropped, x, use_reentrant=reentrant)), dispatch=dispatch)
    for _ in range(STEPS):
        x = torch.ones(64, 9, requires_grad=True)
        output = wrapper(x)
        output.sum().backward()
        assert torch.equal(x.grad, output)


def test_a_seed_gives_the_same_training_again():
    def trained(dispatch):
        torch.manual_seed(3)
        base = noisy()
        wrapper = wrap(base, dispatch=dispatch)
        for _ in range(STEPS):
            base.zero_grad()
            wrapper(torch.randn(64, 5)).square().sum().backward()
        return [parameter.grad for parameter in base.parameters()]

    want = trained("sequence")
    for _ in range(3 if runs_everything() else 1):
        assert all(map(torch.equal, trained("auto"), want))


def test_draws_on_threads_are_warned_of_once():
    wrapper, x = wrap(noisy(), dispatch="threads"), torch.randn(8, 5)
    with pytest.warns(UserWarning, match=WARNING) as caught:
        assert [wrapper(x).shape for _ in range(3)] == [(8, 3)] * 3
    assert len(caught) == 1
    with pytest.warns(UserWarning, match=WARNING):
        parallel_apply([noisy()] * 2, [x] * 2, None, ["cpu"] * 2)


@pytest.mark.parametrize("dispatch", ["threads", "auto"])
def test_there_is_no_warning_if_nothing_is_drawn(dispatch):
    wrapper = wrap(mlp(), dispatch=dispatch)
    evaluated = wrap(noisy().eval(), dispatch=dispatch)
    with no_warnings():
        for _ in range(STEPS):
            wrapper(torch.randn(8, 5))
            torch.randn(8)
            evaluated(torch.randn(8, 5))


def test_after_a_first_draw_on_threads_auto_runs_in_sequence():
    assert_leaves_threads(lambda: torch.rand(1), WARNING)


def test_training_and_evaluation_are_measured_separately():
    """Otherwise threads chosen in evaluation would run the first training step, which draws."""
    base = Call(lambda self, x: (time.sleep(0.01), nn.functional.dropout(x, training=self.training))[1])
    wrapper = wrap(base.eval(), dispatch="auto")
    for _ in range(2 * TRIES):
        wrapper(torch.zeros(8, 1))
    base.train()
    with no_warnings():
        for _ in range(STEPS):
            wrapper(torch.zeros(8, 1))


def test_the_check_of_a_generator_is_hidden_from_the_users_modes():
    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            names.append(function.__name__)
            return function(*args, **(kwargs or {}))

    names, cpu = [], torch.device("cpu")
    with Seen():
        shared = ThreadHazards([cpu, cpu])
        assert not shared.uses()
    assert not names
    torch.rand(1)
    (use,) = shared.uses()
    assert "from the generator of cpu," in use


def test_threads_by_choice_are_checked_in_the_first_forwards_only(monkeypatch):
    checks = []
    monkeypatch.setattr(dispatcher, "HAZARD_CHECKS", 3)
    monkeypatch.setattr(ThreadHazards, "uses", lambda self: checks.append(self) or [])
    wrapper = wrap(mlp(), dispatch="threads")
    for _ in range(10):
        wrapper(torch.randn(8, 5))
    assert len(checks) == 3


def test_generators_are_not_checked_for_a_single_chunk(monkeypatch):
    monkeypatch.setattr(ThreadHazards, "__init__", None)
    assert wrap(noisy(), dispatch="threads")(torch.randn(1, 5)).shape == (1, 3)
