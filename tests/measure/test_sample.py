import gc

import pytest
import torch
import torch.distributed as dist

from dpbench.measure.ranks.team import Ranks, Team
from dpbench.measure.sample import sample
from dpbench.measure.stopping import StopRule, WarmUp
from tests.fakes import FakeEdges, FakeTeam, ScriptedClock, ScriptedSteps


def test_samples_are_the_steps_after_the_warm_up():
    clock = ScriptedClock()
    steps = ScriptedSteps(clock, [9.0] * 5 + [1.0] * 200)
    sampled = sample(steps, clock, Team(), WarmUp(max_s=1e9), StopRule(max_s=1e9), window=FakeEdges(clock))
    assert set(sampled.times_s) == {1.0}
    assert steps.taken == sampled.warmup_steps + len(sampled.times_s)
    assert sampled.stopped_by == "interval"


def test_ranks_agree_on_the_slowest_ones_times(monkeypatch):
    other = torch.tensor([3.0, -3.0, 9.0], dtype=torch.float64)  # its step, less its step, and its time so far

    def all_reduce(times_s, *, op, group):
        assert op == dist.ReduceOp.MAX
        times_s.copy_(torch.maximum(times_s, other))

    monkeypatch.setattr(dist, "new_group", lambda **_: None)
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    assert Ranks(0, 2).slowest(1.0, 10.0) == (3.0, 2.0, 10.0)
    assert Ranks(0, 2).slowest(5.0, 8.0) == (5.0, 2.0, 9.0)


def test_a_sample_is_the_slowest_ranks_time_and_has_a_skew():
    clock = ScriptedClock()
    sampled = sample(
        ScriptedSteps(clock, [1.0]),
        clock,
        FakeTeam(lag_s=0.25),
        WarmUp(max_s=5),
        StopRule(max_s=50),
        window=FakeEdges(clock),
    )
    assert set(sampled.times_s) == {1.25}
    assert set(sampled.skew_s) == {0.25}
    assert sampled.lag_s == 0.0  # the other rank lags


def test_the_slower_rank_has_a_lag():
    class SlowestTeam(Team):
        size = 2

        def slowest(self, step_s, elapsed_s):
            return step_s, 0.4, elapsed_s

    clock = ScriptedClock()
    steps = ScriptedSteps(clock, [1.0])
    sampled = sample(steps, clock, SlowestTeam(), WarmUp(max_s=5), StopRule(max_s=50), window=FakeEdges(clock))
    assert sampled.lag_s == pytest.approx(0.4)


def test_frozen_objects_are_unfrozen_afterwards():
    clock = ScriptedClock()
    before = gc.get_freeze_count()
    sample(ScriptedSteps(clock, [1.0]), clock, Team(), WarmUp(max_s=1), StopRule(max_s=1), window=FakeEdges(clock))
    assert gc.get_freeze_count() == before == 0


def test_an_error_of_a_step_is_raised():
    def step():
        raise KeyError("boom")

    clock = ScriptedClock()
    with pytest.raises(KeyError, match="boom"):
        sample(step, clock, Team(), WarmUp(max_s=1), StopRule(max_s=1), window=FakeEdges(clock))


def test_the_window_has_all_samples_and_no_warm_up():
    clock = ScriptedClock()
    edges = FakeEdges(clock)
    steps = ScriptedSteps(clock, [9.0] * 5 + [1.0] * 200)
    sampled = sample(steps, clock, Team(), WarmUp(max_s=1e9), StopRule(max_s=1e9), window=edges)
    assert edges.steps == len(sampled.times_s)
    assert edges.ended_s == clock.time_s
    assert edges.ended_s - edges.began_s == sum(sampled.times_s)


def test_a_sample_of_several_steps_has_no_wait_between_them():
    order = []
    clock = ScriptedClock()
    edges = FakeEdges(clock)

    def step():
        order.append("step")
        clock.advance(1.0)

    def waiting_clock():
        order.append("wait")
        return clock()

    warmup, rule = WarmUp(max_s=1e9), StopRule(max_s=1e9)
    sampled = sample(step, waiting_clock, Team(), warmup, rule, window=edges, steps_per_sample=3)
    samples = "".join(map(str, order)).replace("step", "s").replace("wait", "w").replace("wsssw", "|")
    assert set(samples) == {"w", "|"}  # the others are the beginnings of warm-up and window
    assert samples.count("w") == 2
    assert set(sampled.times_s) == {3.0}
    assert edges.steps == 3 * len(sampled.times_s)
    assert order.count("step") == sampled.warmup_steps + edges.steps
