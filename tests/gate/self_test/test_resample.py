"""Gates drawn from pools whose true ratio is known."""

from math import log
from random import Random
from statistics import fmean, stdev

import pytest

from dpbench.gate.judgement import Verdict
from dpbench.gate.self_test.resample import Pool, _Draw, drawn_gates
from tests.gate.making_rounds import benchmark, noisy, ratio
from tests.gate.making_trials import round_trial

NAMES = ("a", "b", "c")
SUITE = [benchmark(name) for name in NAMES]


def pool(growth=0.0, spread=0.01, round_s=10.0, seed=0, names=NAMES):
    rng = Random(seed)
    return Pool({name: [noisy(rng, growth, spread)() for _ in range(60)] for name in names}, round_s)


def drawn(equal, slower=None, slower_in=NAMES, *, gates=200, budget_s=300.0, seed=0):
    found = drawn_gates(
        SUITE, equal, slower, slower_in=slower_in, gates=gates, alarm_rate=0.005, budget_s=budget_s, seed=seed
    )
    assert all(each.duration_s > 0 for each in found)
    return [each.verdict for each in found]


def test_equal_pools_raise_no_alarm():
    found = drawn(pool())
    assert len(found) == 200
    assert set(found) == {Verdict.PASS}
    assert drawn(pool(), slower_in=(), gates=2) == [Verdict.PASS] * 2


def test_a_pool_that_is_slower_by_20_percent_is_always_found():
    assert set(drawn(pool(), pool(0.2, seed=1))) == {Verdict.SLOWER}


def test_the_slowdown_is_in_one_benchmark_after_the_other():
    """Only b is slow, so every other gate compares equal code."""
    slower = Pool({**pool().ratios, "b": [ratio(log(1.5), 0.001 * (-1) ** i) for i in range(60)]}, 10.0)
    found = drawn(pool(), slower, slower_in=("a", "b"), gates=6)
    assert found == [Verdict.PASS, Verdict.SLOWER] * 3


def test_the_recorded_durations_spend_the_budget():
    """Three rounds of 10 s are too few to decide anything with such noise."""
    noise = pool(spread=0.2)
    assert set(drawn(noise, gates=20, budget_s=35.0)) == {Verdict.UNDECIDED}
    quiet = pool()
    assert set(drawn(quiet, gates=20, budget_s=5.0)) == {Verdict.UNDECIDED}  # one round
    assert set(drawn(quiet, gates=20, budget_s=55.0)) == {Verdict.PASS}


def test_a_round_of_fewer_benchmarks_is_shorter():
    draw = _Draw(pool(round_s=9.0), None, None, Random(0))
    draw.take(SUITE, 0)
    assert draw.clock() == 9.0
    draw.take(SUITE[1:], 1)
    assert draw.clock() == 15.0


def test_the_same_seed_gives_the_same_verdicts():
    noise = pool(spread=0.05)
    assert drawn(noise, gates=40, seed=3) == drawn(noise, gates=40, seed=3)
    assert drawn(noise, gates=40, seed=3) != drawn(noise, gates=40, seed=4)


def test_a_pool_has_the_rounds_of_its_trials_by_benchmark():
    trials = [round_trial(0, a=0.1, b=0.2, duration_s=4.0), round_trial(1, a=0.3, duration_s=6.0)]
    found = Pool.of(trials)
    assert {name: [each.contrast for each in ratios] for name, ratios in found.ratios.items()} == {
        "a": [0.1, 0.3],
        "b": [0.2],
    }
    assert found.round_s == 5.0


def test_a_pool_with_growth_has_that_growth_on_average():
    grown = pool(growth=0.4, spread=0.05).with_growth(0.02)
    for ratios in grown.ratios.values():
        assert fmean(each.contrast for each in ratios) == pytest.approx(log(1.02))
    assert stdev(each.contrast for each in grown.ratios["a"]) > 0.01
