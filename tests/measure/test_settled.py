"""A scheme that settles late shows its trials in no result."""

import os
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

from dpbench.cases.case import Case
from dpbench.cases.names import Mode
from dpbench.engine.messages import LockstepJob, Side, SideName
from dpbench.jobs.lockstep_child import _side_by_side
from dpbench.measure import profiled_step
from dpbench.measure.measurement import Stages, measure
from dpbench.measure.ranks.team import Team
from dpbench.measure.sample import settle
from dpbench.measure.session import open_session
from dpbench.measure.stopping import NotSettledError
from dpbench.parallel import DataParallel, Policy
from dpbench.variants import variant
from dpbench.variants.variant import TUNED, Variant
from tests.parallel.conftest import _without_forward_ad  # noqa: F401  # a test of this process may have used it

SLOW_STEPS = 30
SLOW_S = 0.05
CASE = Case(variant="tuned", workload="mlp/tiny", batch=8, devices=("cpu", "cpu"), threads=2)


class Late(nn.Module):
    """A wrapper whose first 30 forwards are trials. They take 50 ms, and look steady."""

    def __init__(self, base):
        super().__init__()
        self.module, self.forwards = base, 0

    @property
    def trials_left(self):
        return max(0, SLOW_STEPS - self.forwards)

    def forward(self, x):
        if self.forwards < SLOW_STEPS:
            time.sleep(SLOW_S)
        self.forwards += 1
        return self.module(x)


@pytest.fixture
def late(monkeypatch):
    late = replace(TUNED, wrap=lambda base, devices, **_: Late(base), without_reduction=None)
    monkeypatch.setattr(variant, "TUNED", late)


@pytest.mark.usefixtures("late")
def test_no_sample_is_a_trial_whatever_the_time():
    record = measure(CASE, 0.01, lambda _: Team())
    assert record.metrics.warmup_steps >= SLOW_STEPS
    assert sorted(record.samples_s)[len(record.samples_s) // 2] < SLOW_S / 2
    assert list(record.metrics.stages_s) == ["start", "model", "warm-up", "phases", "fairness"]
    assert record.metrics.stages_s["warm-up"] >= SLOW_STEPS * SLOW_S
    assert len(record.samples_s) >= 20
    assert sum(record.samples_s) >= 1.0


def test_a_stage_begins_where_the_last_one_ended_and_holds_no_samples(monkeypatch):
    stages, begun_s = Stages(), psutil.Process().create_time()
    monkeypatch.setattr(time, "time", iter([begun_s + 2, begun_s + 12]).__next__)
    stages.end("start")
    stages.end("warm-up", samples_s=7)
    assert stages.seconds == pytest.approx({"start": 2, "warm-up": 3})


@pytest.mark.usefixtures("late")
def test_no_profiled_step_is_a_trial(monkeypatch):
    left, step_s = [], profiled_step._step_s

    def noted(session, idle):
        left.append(session.trials_left())
        return step_s(session, idle)

    monkeypatch.setattr(profiled_step, "_WARM_UP_S", 0.0)  # two seconds would be longer than all trials
    monkeypatch.setattr(profiled_step, "_step_s", noted)
    profile = profiled_step.profile_step(CASE, "m:", "step")
    assert left == [0] * len(profile.other_s)
    assert left


@pytest.mark.usefixtures("late")
def test_no_block_of_a_gate_is_a_trial(monkeypatch):
    monkeypatch.setattr("dpbench.jobs.lockstep_side.use_folder", lambda _: None)
    side = Side(folder=str(Path(__file__).parents[2]))
    job = LockstepJob(
        benchmark="b",
        case=CASE.model_copy(update={"mode": Mode.INFER}),  # a fork of a process that took a backward can take none
        sides=dict.fromkeys(SideName, side),
        cores=tuple(os.sched_getaffinity(0))[:1],
        blocks=1,
        block_s=0.01,
        timeout_s=100.0,
        seed=0,
    )
    with _side_by_side(job) as (_, take):
        assert max(take(SideName.HEAD, 5)[0]) < SLOW_S


def test_a_wrapper_of_an_old_commit_gets_16_steps(monkeypatch):
    monkeypatch.setattr(variant, "TUNED", replace(TUNED, wrap=lambda base, devices, **_: base))
    session, steps = open_session(CASE), []
    assert session.trials_left() is None
    settle(lambda: steps.append(session.step()), session.trials_left)
    assert len(steps) == 16


def test_a_scheme_that_never_settles_is_an_outcome(monkeypatch):
    class Never(Late):
        trials_left = 1

    monkeypatch.setattr("dpbench.measure.stopping._SETTLED_AFTER_S", 0.1)
    monkeypatch.setattr(variant, "TUNED", replace(TUNED, wrap=lambda base, devices, **_: Never(base)))
    with pytest.raises(NotSettledError, match="not settled after"):
        measure(CASE, 0.01, lambda _: Team())


@pytest.mark.parametrize("mode", list(Mode))
def test_the_wrapper_of_today_is_settled_after_its_trials(mode):
    session = open_session(CASE.model_copy(update={"mode": mode}))
    left = [session.trials_left()]
    while left[-1]:
        session.step()
        left.append(session.trials_left())
    assert left == [1, *range(7, -1, -1)]


def test_each_mode_and_number_of_lanes_has_trials_of_its_own():
    model = DataParallel(nn.Linear(3, 2), ["cpu", "cpu", "cpu"])

    def settled():
        for _ in range(8):
            model(torch.ones(6, 3))
        return model.trials_left == 0

    assert settled()
    model.eval()
    assert model.trials_left == 8
    assert settled()
    with torch.no_grad():
        assert model.trials_left == 8
        assert settled()
    model.train()
    assert model.trials_left == 0
    model(torch.ones(2, 3))  # two lanes
    assert model.trials_left == 7
    model(torch.ones(6, 3))
    assert model.trials_left == 0


@pytest.mark.parametrize("policy", [Policy(dispatch="threads"), Policy(dispatch="sequence")])
def test_a_fixed_dispatch_is_settled_after_one_forward(policy):
    model = DataParallel(nn.Linear(3, 2), ["cpu", "cpu"], policy=policy)
    assert model.trials_left == 1
    model(torch.ones(6, 3))
    assert model.trials_left == 0


def test_without_lanes_there_is_nothing_to_try():
    assert DataParallel(nn.Linear(3, 2), ["cpu"]).trials_left == 0
    assert Variant(wrap=lambda base, devices: base).trials_left(nn.Linear(3, 2)) == 0
