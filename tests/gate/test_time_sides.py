"""The loop of rounds and interim analyses, with scripted rounds and a simulated clock."""

from math import log
from pathlib import Path
from random import Random
from time import monotonic
from types import SimpleNamespace

import pytest

from dpbench.gate import time_sides as times_module
from dpbench.gate.benchmarks import Benchmarks
from dpbench.gate.judgement import Verdict
from dpbench.gate.settings import BorrowedBenchmark, Settings
from dpbench.gate.sides import Sides
from dpbench.gate.time_sides import Times, budget_that_decides, measure_times, time_sides
from dpbench.gate.time_verdict import rounds_to_decide, twin_alarms
from dpbench.judge.estimate import Estimate
from dpbench.judge.repeated import Analysis, risks_for
from tests.gate.making_rounds import ScriptedTake, benchmark, noisy, ratio
from tests.records.making import ENVIRONMENT
from tests.report.gate.making_gate import time, unmeasured

NAMES = ("a", "b", "c")
SUITE = [benchmark(name) for name in NAMES]


def measured(take, budget_s=1000.0, progress=lambda *_: None):
    return measure_times(SUITE, take, alarm_rate=0.01, budget_s=budget_s, clock=take.clock, progress=progress)


def equal(seed=0):
    return noisy(Random(seed), 0.0, 0.001)


def unclear(seed=1):
    """Rounds just below the tolerated growth, which are not decided soon."""
    signs = [1, -1]

    def draw():
        signs.reverse()
        return ratio(log(1.029) + 0.01 * signs[0])

    return draw


def by_name(times):
    return {judged.benchmark: judged for judged in times.judgements}


def test_equal_code_passes_at_the_first_analysis():
    take, reported = ScriptedTake({name: equal() for name in NAMES}), []
    times = measured(take, progress=lambda *said: reported.append(said))
    assert take.calls == [(number, NAMES) for number in range(5)]
    assert [judged.verdict for judged in times.judgements] == [Verdict.PASS] * 3
    assert [judged.benchmark for judged in times.judgements] == list(NAMES)
    assert times.twin_alarmed == dict.fromkeys(NAMES, False)
    assert times.environment == ENVIRONMENT
    assert reported[0] == ("round 1, benchmarks to decide: 3", 1000.0)
    assert reported[4] == ("round 5, benchmarks to decide: 3", 996.0)


def test_one_slower_benchmark_ends_the_gate_and_others_may_stay_undecided():
    take = ScriptedTake({"a": unclear(), "b": noisy(Random(0), 0.5, 0.001), "c": equal()})
    times = measured(take)
    assert len(take.calls) == 5
    assert [judged.verdict for judged in times.judgements] == [Verdict.UNDECIDED, Verdict.SLOWER, Verdict.PASS]
    assert times.verdict is Verdict.SLOWER


def test_only_undecided_benchmarks_take_further_rounds_until_time_is_up():
    take = ScriptedTake({"a": equal(), "b": unclear(), "c": equal()})
    times = measured(take, budget_s=12.5)
    assert take.calls[:5] == [(number, NAMES) for number in range(5)]
    assert take.calls[5:] == [(number, ("b",)) for number in range(5, 12)]
    judged = by_name(times)
    assert (judged["a"].rounds, judged["a"].looks, judged["a"].verdict) == (5, 1, Verdict.PASS)
    assert (judged["b"].rounds, judged["b"].looks, judged["b"].verdict) == (12, 4, Verdict.UNDECIDED)


def test_each_analysis_knows_the_share_of_the_budget_that_is_over_and_the_last_one_has_all(monkeypatch):
    """Otherwise half of the error rate would never be spent."""
    seen, judge = {}, times_module.judge
    monkeypatch.setattr(
        times_module, "judge", lambda *words: seen.setdefault(words[2].number, words[2]) and judge(*words)
    )
    measured(ScriptedTake({"a": equal(), "b": unclear(), "c": equal()}), budget_s=12.5)
    assert [seen[number].share for number in (1, 2, 3, 4)] == [pytest.approx(5 / 12.5), 7 / 12.5, 10 / 12.5, 1.0]
    assert [seen[number].share_before for number in (2, 3, 4)] == [seen[number].share for number in (1, 2, 3)]


def test_a_round_that_would_outlast_the_budget_is_not_begun():
    """A budget of 35 s has room for three rounds of 10 s."""
    take = ScriptedTake({name: unclear() for name in NAMES}, round_s=10.0)
    times = measured(take, budget_s=35.0)
    assert len(take.calls) == 3
    assert take.clock() == 130.0
    assert {(judged.rounds, judged.looks, judged.verdict) for judged in times.judgements} == {(3, 1, Verdict.UNDECIDED)}


def test_the_longest_round_so_far_must_fit_not_the_last_one():
    take = ScriptedTake({name: unclear() for name in NAMES}, round_s=10.0)

    def shorter_and_shorter(benchmarks, number):
        taken = take(benchmarks, number)
        take._round_s = 1.0
        return taken

    times = measure_times(SUITE, shorter_and_shorter, alarm_rate=0.01, budget_s=25.0, clock=take.clock)
    assert times.judgements[0].rounds == 1 + 5  # until 15 s are over and 10 s are left


def test_time_that_is_up_at_an_analysis_allows_no_further_analysis():
    take = ScriptedTake({name: unclear() for name in NAMES})
    times = measured(take, budget_s=5.5)
    assert {(judged.rounds, judged.looks) for judged in times.judgements} == {(5, 1)}


@pytest.mark.parametrize(("budget_s", "rounds"), [(2.5, 2), (0.5, 1), (0.0, 0), (-3.0, 0)])
def test_fewer_than_three_rounds_decide_nothing(budget_s, rounds):
    take = ScriptedTake({name: noisy(Random(0), 9.0, 0.0) for name in NAMES})
    times = measured(take, budget_s=budget_s)
    assert len(take.calls) == rounds
    for judged in times.judgements:
        assert (judged.verdict, judged.rounds, judged.looks, judged.ratio) == (Verdict.UNDECIDED, rounds, 0, None)
        assert judged.why == f"the budget had room for {rounds} of the 3 rounds that are needed"
        assert judged.threshold == 0.03
    assert times.twin_alarmed == {}
    assert (times.environment is None) == (rounds == 0)


def test_a_twin_that_alarmed_at_one_analysis_has_alarmed():
    """Head's gate would have ended at that analysis."""
    off = [ratio(log(1.029) + 0.01 * (-1) ** i, twin=0.2 + 0.001 * (-1) ** i) for i in range(5)]
    later = iter([*off, *[ratio(log(1.029) + 0.01 * (-1) ** i, twin=-1.0) for i in range(100)]])
    take = ScriptedTake({"a": equal(), "b": lambda: next(later), "c": equal()})
    times = measured(take, budget_s=30.0)
    assert by_name(times)["b"].looks > 1
    assert times.twin_alarmed == {"a": False, "b": True, "c": False}
    assert twin_alarms(benchmark("b"), off, Analysis(1), risks_for(0.01, 3))


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ((), "pass"),
        (("pass", "pass"), "pass"),
        (("pass", "undecided"), "undecided"),
        (("undecided", "slower", "pass"), "slower"),
    ],
)
def test_a_suite_is_slower_if_any_benchmark_is_else_undecided_if_any_is(verdicts, expected):
    assert Times(tuple(time(verdict=verdict) for verdict in verdicts)).verdict is Verdict(expected)


def test_what_is_undecided_says_how_much_more_time_it_needs():
    take = ScriptedTake({"a": unclear(), "b": equal(), "c": equal()})
    short = measured(take, budget_s=2.5)
    assert short.more_s == 3 * 1.0  # two of the first five rounds were taken, each in a second
    assert measured(ScriptedTake({name: equal() for name in NAMES})).more_s == 0.0
    near = ScriptedTake({"a": unclear(), "b": equal(), "c": equal()})
    assert measured(near, budget_s=9.5).more_s is None


def test_times_of_two_groups_are_one():
    first, second = (Times((time(name),), {name: False}, None, (name,), 1.0) for name in "ab")
    both = first.beside(second)
    assert ([judged.benchmark for judged in both.judgements], both.notes, both.more_s) == (["a", "b"], ("a", "b"), 2.0)
    assert first.beside(Times((), {}, ENVIRONMENT, (), None)).more_s is None


def test_fewer_rounds_are_needed_where_the_ratio_is_far_from_the_tolerated_growth():
    def needed(value, half, rounds=10):
        time_ratio = Estimate(value=value, low=value / half, high=value * half)
        return rounds_to_decide(time("a", "undecided", ratio=time_ratio, threshold=0.03, rounds=rounds))

    assert needed(1.0, 1.05) == 37  # beyond 10: (1.3 x 4.88 % / 2.96 %)^2 x 10 are 47
    assert needed(1.1, 1.05) < needed(1.05, 1.05)
    assert needed(1.0, 1.02) < needed(1.02, 1.02)
    assert needed(1.029, 1.05) is None


def test_a_suite_has_the_half_that_steps_leave(monkeypatch):
    asked = []

    def measured(group, _, *, budget_s, of, **__):
        asked.append(([member.name for member in group], round(budget_s), of))
        return Times(tuple(time(member.name, verdicts[member.name]) for member in group))

    own, lent = benchmark("step"), BorrowedBenchmark(name="time_x", workload="asv time_x", threshold=0.02)
    monkeypatch.setattr(times_module, "measure_times", measured)

    def times(*benchmarks):
        asked.clear()
        fields = {"tiers": (0, 1), "start_s": monotonic(), "budget_s": 90.0, "settings": Settings()}
        sides = Sides(Path("/b"), Path("/h"), None, build_s=10.0)  # which the budget does not count
        return time_sides(SimpleNamespace(**fields), Benchmarks(both=benchmarks), sides, lambda *_: None)

    verdicts = {"step": "pass", "time_x": "pass"}
    assert [judged.benchmark for judged in times(lent, own).judgements] == ["step", "time_x"]
    assert asked == [(["step"], 50, 2), (["time_x"], 100, 2)]
    times(own)
    assert asked == [(["step"], 100, 1)]
    times(lent)
    assert asked == [(["time_x"], 100, 1)]
    verdicts["step"] = "slower"  # the verdict is sure, so nothing more is measured
    times(own, lent)
    assert asked == [(["step"], 50, 2), (["time_x"], 0, 2)]


def test_an_undecided_verdict_names_a_budget():
    undecided = (unmeasured("a", Verdict.UNDECIDED),)
    assert budget_that_decides(Times((time("a"),)), 300.0) is None
    assert budget_that_decides(Times((time("a", "slower"), *undecided)), 300.0) is None
    needs = budget_that_decides(Times(undecided, more_s=200.0), 300.0)
    assert needs == "--budget 10m would decide it, if the machine stays as it is"
    assert budget_that_decides(Times(undecided, more_s=None), 300.0) == "more time is not likely to decide it"
