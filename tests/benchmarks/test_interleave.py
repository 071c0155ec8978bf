import random

from benchmarks.pytest_suite.interleave import interleave, paired_ratio
from tests.fakes import ScriptedClock


def test_each_scheme_takes_one_step_a_round_in_random_order():
    clock, log = ScriptedClock(), []
    steps = {name: lambda name=name: (log.append(name), clock.advance(ord(name))) for name in "abc"}
    times_s = interleave(steps, clock, rounds=50, warmup_rounds=2, seed=0)
    assert {name: set(times) for name, times in times_s.items()} == {n: {float(ord(n))} for n in "abc"}
    rounds = [tuple(log[i : i + 3]) for i in range(0, len(log), 3)]
    assert len(rounds) == 52
    assert all(set(order) == set("abc") for order in rounds)
    assert len(set(rounds)) == 6


def test_a_drift_of_both_schemes_does_not_change_the_ratio():
    rng = random.Random(1)
    drift = [1 + i / 50 for i in range(200)]
    slow = [1.10 * d * rng.uniform(0.99, 1.01) for d in drift]
    fast = [1.00 * d * rng.uniform(0.99, 1.01) for d in drift]
    ratio = paired_ratio(slow, fast)
    assert ratio.low < 1.10 < ratio.high
    assert ratio.high - ratio.low < 0.01
