import gc

import pytest

from dpbench.measure.sample import sample
from dpbench.measure.stopping import StopRule, WarmUp
from dpbench.measure.team import Solo
from tests.fakes import FakeEdges, FakeTeam, ScriptedClock, ScriptedSteps


def test_samples_are_the_steps_after_the_warm_up():
    clock = ScriptedClock()
    steps = ScriptedSteps(clock, [9.0] * 5 + [1.0] * 200)
    found = sample(steps, clock, Solo(), WarmUp(max_s=1e9), StopRule(max_s=1e9), window=FakeEdges(clock))
    assert set(found.times_s) == {1.0}
    assert steps.taken == found.warmup_steps + len(found.times_s)
    assert found.stopped_by == "interval"


def test_a_sample_is_the_slowest_ranks_time_and_the_skew_is_kept():
    clock = ScriptedClock()
    found = sample(
        ScriptedSteps(clock, [1.0]),
        clock,
        FakeTeam(lag_s=0.25),
        WarmUp(max_s=5),
        StopRule(max_s=50),
        window=FakeEdges(clock),
    )
    assert set(found.times_s) == {1.25}
    assert set(found.skew_s) == {0.25}
    assert found.lag_s == 0.0  # it is the other rank that lags


def test_the_slower_rank_knows_by_how_much():
    class SlowestTeam(Solo):
        size = 2

        def slowest(self, step_s, elapsed_s):
            return step_s, 0.4, elapsed_s

    clock = ScriptedClock()
    steps = ScriptedSteps(clock, [1.0])
    found = sample(steps, clock, SlowestTeam(), WarmUp(max_s=5), StopRule(max_s=50), window=FakeEdges(clock))
    assert found.lag_s == pytest.approx(0.4)


def test_what_the_collector_was_spared_is_given_back_to_it():
    clock = ScriptedClock()
    before = gc.get_freeze_count()
    sample(ScriptedSteps(clock, [1.0]), clock, Solo(), WarmUp(max_s=1), StopRule(max_s=1), window=FakeEdges(clock))
    assert gc.get_freeze_count() == before == 0


def test_a_failing_step_is_not_swallowed():
    def step():
        raise KeyError("boom")

    clock = ScriptedClock()
    with pytest.raises(KeyError, match="boom"):
        sample(step, clock, Solo(), WarmUp(max_s=1), StopRule(max_s=1), window=FakeEdges(clock))


def test_the_window_is_that_of_the_samples_and_no_warm_up_falls_into_it():
    clock = ScriptedClock()
    edges = FakeEdges(clock)
    steps = ScriptedSteps(clock, [9.0] * 5 + [1.0] * 200)
    found = sample(steps, clock, Solo(), WarmUp(max_s=1e9), StopRule(max_s=1e9), window=edges)
    assert edges.steps == len(found.times_s)
    assert edges.ended_s == clock.time_s
    assert edges.ended_s - edges.began_s == sum(found.times_s)
