import time

import pytest
import torch
from torch import nn

from dpbench.cases.case import Case
from dpbench.measure.phases import PHASES, STEPS_OF_VARIANT, TRAINING, phases_of, reduction_nodes, steps_worth
from dpbench.measure.session import open_session
from dpbench.parallel import DataParallel

SLEEP_S = 0.02


def session(variant, mode="train"):
    devices = ("cpu",) * (1 if variant == "single" else 2)
    case = Case(variant=variant, workload="mlp/tiny", batch=8, devices=devices, threads=1, mode=mode)
    return open_session(case)


def seconds(phases):
    return {phase: value for phase, value in phases.items() if isinstance(value, float)}


@pytest.mark.parametrize(
    ("variant", "steps"),
    [
        ("tuned", STEPS_OF_VARIANT),
        ("naive", STEPS_OF_VARIANT),
        ("floor", ("scatter", "parallel_apply", "gather")),
        ("single", ()),
    ],
)
def test_every_phase_has_a_time_or_a_reason(variant, steps):
    phases = phases_of(session(variant), 2)
    assert tuple(phases) == PHASES
    expected = {"forward", *steps, "loss", "backward", "optimiser"} | ({"reduce"} if "replicate" in steps else set())
    assert set(seconds(phases)) == expected
    assert all(value > 0 if isinstance(value, float) else len(value) > 20 for value in phases.values())


def test_the_parts_lie_within_the_whole():
    phases_s = seconds(phases_of(session("naive"), 1))
    assert sum(phases_s[part] for part in (*STEPS_OF_VARIANT, "loss")) <= phases_s["forward"]
    assert phases_s["reduce"] <= phases_s["backward"]


def test_inference_has_reasons_for_the_training_phases():
    phases = phases_of(session("tuned", "infer"), 1)
    assert {phases[phase] for phase in TRAINING} == {"inference has no such phase"}
    assert phases["forward"] > 0


@pytest.mark.parametrize("name", STEPS_OF_VARIANT)
def test_a_slow_method_shows_in_its_phase_only(name):
    made = session("tuned")
    slow_down(made.scheme, name)
    phases_s = seconds(phases_of(made, 1))
    assert phases_s[name] >= SLEEP_S
    assert phases_s["forward"] >= SLEEP_S
    others = sum(phases_s[other] for other in STEPS_OF_VARIANT if other != name)
    assert phases_s["forward"] - phases_s[name] >= others


def slow_down(owner, name):
    method = getattr(owner, name)
    setattr(owner, name, lambda *args: (time.sleep(SLEEP_S), method(*args))[1])


def test_a_slow_loss_shows_in_the_loss():
    made = session("tuned")
    slow_down(made, "_loss")
    phases_s = seconds(phases_of(made, 1))
    assert phases_s["loss"] >= SLEEP_S
    assert phases_s["forward"] >= phases_s["loss"]


def test_a_slow_optimizer_shows_in_the_optimiser():
    made = session("single")
    slow_down(made.optimizer, "step")
    assert seconds(phases_of(made, 1))["optimiser"] >= SLEEP_S


@pytest.mark.parametrize("variant", ["tuned", "naive", "single"])
def test_the_session_and_its_variant_are_restored(variant):
    made = session(variant)
    before = dict(vars(made)), dict(vars(made.scheme))
    phases_of(made, 2)
    assert (dict(vars(made)), dict(vars(made.scheme))) == before


def test_a_failing_step_leaves_no_wrapper_behind():
    made = session("tuned")
    before = dict(vars(made.scheme))

    def fail(*_):
        raise KeyError("boom")

    made.optimizer.step = fail
    with pytest.raises(KeyError, match="boom"):
        phases_of(made, 1)
    assert dict(vars(made.scheme)) == before


class MyFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_reduction_nodes_are_the_wrappers_and_not_the_users():
    class User(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return x * MyFunction.apply(self.weight)

    user = User()
    assert reduction_nodes(user(torch.ones(4, 2)).sum()) == []
    loss = DataParallel(user, ["cpu"] * 2)(torch.ones(4, 2)).sum()  # in torch 2.11 its nodes have no name without it
    assert [node.name() for node in reduction_nodes(loss)] == ["BroadcastNodeBackward"]


def test_more_steps_are_taken_if_they_are_short():
    assert steps_worth(0.001, sampling_s=1.0) == 10
    assert steps_worth(0.01, sampling_s=1.0) == 5
    assert steps_worth(100.0, sampling_s=1.0) == 1
