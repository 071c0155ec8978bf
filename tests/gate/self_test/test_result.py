"""The result of a self-test from its trials."""

from math import exp
from statistics import fmean, stdev

import pytest
from scipy.stats import binomtest

from dpbench.gate.judgement import Verdict
from dpbench.gate.self_test.record import slowed_in_turn
from dpbench.gate.self_test.result import SelfTest, Verdicts, result_of
from dpbench.gate.self_test.trials import Condition
from dpbench.gate.settings import Cores, Settings
from tests.gate.making_rounds import benchmark
from tests.gate.making_trials import gate_trial, recorded
from tests.results.making import ENVIRONMENT

SETTINGS = Settings(benchmarks=(benchmark("a"), benchmark("b")))
WHOLE = [
    gate_trial(0, Condition.SLOWER_5, "slower", "a", "a"),
    gate_trial(1, Condition.SLOWER_5, "slower", "b", "a"),  # names another benchmark
    gate_trial(2, Condition.SLOWER_5, "undecided", "a", None),
    gate_trial(0, Condition.EQUAL, "pass", None, None),
]


@pytest.fixture(scope="module")
def found():
    return result_of([*recorded(), *WHOLE], SETTINGS, 60.0, gates=50)


def of(found, condition):
    return next(each for each in found.tested if each.condition is condition)


def test_verdicts_are_counted():
    counted = Verdicts.count([Verdict.PASS, Verdict.SLOWER, Verdict.PASS, Verdict.UNDECIDED, Verdict.PASS])
    assert counted == Verdicts(slower=1, undecided=1, passed=3)
    assert counted.gates == 5


def test_every_condition_is_drawn_from_its_own_rounds(found):
    assert [each.condition for each in found.tested] == list(Condition)
    below_threshold = 0
    for condition, slower in zip(Condition, (0, 0, below_threshold, 50, 50), strict=True):
        drawn = of(found, condition).drawn
        assert (drawn.slower, drawn.gates) == (slower, 50)


def test_whole_gates_are_counted_and_those_that_named_the_slowed_benchmark(found):
    five, equal, loaded = (of(found, each) for each in (Condition.SLOWER_5, Condition.EQUAL, Condition.LOADED))
    assert five.whole == Verdicts(slower=2, undecided=1)
    assert five.found == 1
    assert (five.median_s, five.longest_s) == (31.0, 32.0)
    assert (equal.whole, equal.found, equal.median_s) == (Verdicts(passed=1), 0, 30.0)
    assert (loaded.whole, loaded.median_s, loaded.longest_s) == (Verdicts(), None, None)


def test_spreads_are_those_of_the_rounds(found):
    rounds = [trial.rounds["b"] for trial in recorded() if trial.condition is Condition.SLOWER_10]
    a, b = of(found, Condition.SLOWER_10).spreads
    assert (a.benchmark, b.benchmark, b.rounds) == ("a", "b", 30)
    assert b.ratio == pytest.approx(exp(fmean(each.contrast for each in rounds)))
    assert b.spread == pytest.approx(stdev(each.contrast for each in rounds))
    assert b.twin_spread == pytest.approx(stdev(each.twin for each in rounds))


def test_the_result_has_its_dates_machine_and_rates(found):
    assert (found.began, found.ended) == ("2026-11-21T12:00:00+00:00", "2026-11-21T13:00:02+00:00")
    assert (found.alarm_rate, found.budget_s, found.environment) == (0.005, 60.0, ENVIRONMENT)


def test_false_alarms_are_those_of_equal_code_with_nothing_else_running(found):
    alarms = found.false_alarms
    assert (alarms.alarms, alarms.of) == (0, 50)
    assert alarms.upper == pytest.approx(binomtest(0, 50).proportion_ci(0.95, method="exact").high)
    assert alarms.gates == "resampled from 30 rounds of the self-test of 2026-11-21"
    assert SelfTest.model_validate_json(found.model_dump_json()) == found


def test_false_alarms_of_a_loaded_machine_are_not_cited(found):
    loaded = of(found, Condition.LOADED).model_copy(update={"drawn": Verdicts(slower=7, passed=3)})
    tested = tuple(loaded if each.condition is Condition.LOADED else each for each in found.tested)
    assert found.model_copy(update={"tested": tested[::-1]}).false_alarms == found.false_alarms


def test_no_slowdown_is_drawn_for_a_benchmark_on_all_cores():
    """B is slower by 10 % in the recorded rounds, which would be found."""
    settings = Settings(benchmarks=(benchmark("a"), benchmark("b", cores=Cores.ALL)))
    equal = [trial for trial in recorded() if trial.condition is Condition.EQUAL]
    trials = [
        trial.model_copy(update={"rounds": {**trial.rounds, "a": calm.rounds["a"]}})
        for trial, calm in zip(recorded(), equal * len(Condition), strict=True)
    ]
    ten = of(result_of(trials, settings, 60.0, gates=20), Condition.SLOWER_10)
    assert ten.drawn.slower == 0


def test_a_slowdown_is_drawn_where_it_is_above_the_threshold():
    settings = Settings(benchmarks=(benchmark("a", threshold=0.03), benchmark("b", threshold=0.2)))
    assert [each.name for each in slowed_in_turn(settings, 0.05)] == ["a"]
    assert [each.name for each in slowed_in_turn(settings, 0.3)] == ["a", "b"]
    assert [each.name for each in slowed_in_turn(settings, 0.02)] == ["a", "b"]
    # in b, 5 % would pass
    assert of(result_of(recorded(), settings, 60.0, gates=20), Condition.SLOWER_5).drawn.slower == 20
