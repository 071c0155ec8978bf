"""Which findings an entry of the settings file covers."""

from datetime import date

import pytest

from dpbench.gate.accepted import apply_accepted
from dpbench.gate.judgement import Accepted, CounterChange, Drift, TimeJudgement, Verdict

COMMIT, OTHER = "1f2e3d4" + "a" * 33, "1f2e3d4" + "b" * 33
TODAY = date(2027, 1, 31)


def entry(benchmark: str = "wide", revision: str = COMMIT, expires: date = TODAY) -> Accepted:
    return Accepted(benchmark=benchmark, revision=revision, reason="so", expires=expires)


def slower(benchmark: str = "wide", verdict: Verdict = Verdict.SLOWER) -> TimeJudgement:
    return TimeJudgement(benchmark=benchmark, verdict=verdict, why="", threshold=0.03, rounds=5, looks=1, cores="0")


def change(benchmark: str, is_worse: bool | None) -> CounterChange:
    return CounterChange(benchmark=benchmark, counter="forward.copies", base=1, head=2, is_worse=is_worse)


def drift(since_commit: str) -> Drift:
    return Drift(benchmark="wide", before_s=1, after_s=1.1, since_commit=since_commit, since="2027-01-01", points=8)


def test_an_entry_covers_its_benchmark_and_no_other_and_the_verdict_stays() -> None:
    found = (slower("wide"), slower("narrow"))
    covered, notes = apply_accepted(found, [entry()], {COMMIT}, TODAY)
    assert covered == (found[0].model_copy(update={"accepted": entry()}), found[1])
    assert covered[0].verdict is Verdict.SLOWER
    assert notes == ()


@pytest.mark.parametrize(
    ("pattern", "covers"), [("*", True), ("wi?e", True), ("w*", True), ("Wide", False), ("wid", False)]
)
def test_benchmarks_are_matched_as_file_names_are(pattern: str, covers: bool) -> None:
    (found,), _ = apply_accepted([slower()], [entry(pattern)], {COMMIT}, TODAY)
    assert (found.accepted is not None) is covers


@pytest.mark.parametrize(
    ("revision", "covers"),
    [(COMMIT, True), (COMMIT[:8], True), (COMMIT[:7], True), (COMMIT[:6], False), ("f" * 40, False), ("", False)],
)
def test_a_revision_is_a_commit_of_the_range_or_its_beginning(revision: str, covers: bool) -> None:
    (found,), notes = apply_accepted([slower()], [entry(revision=revision)], {COMMIT, "0" * 40}, TODAY)
    assert (found.accepted is not None) is covers
    assert notes == ()


def test_a_beginning_of_two_commits_covers_nothing_and_is_one_note() -> None:
    found, notes = apply_accepted([slower(), slower()], [entry(revision=COMMIT[:7])], {COMMIT, OTHER}, TODAY)
    assert [each.accepted for each in found] == [None, None]
    assert notes == (
        "accepted: 'wide' at 1f2e3d4 is ambiguous: 2 commits of base..head begin so; allowed: more digits",
    )


def test_an_entry_holds_on_its_last_day_and_is_a_note_after_it() -> None:
    old = entry(expires=date(2027, 1, 30))
    assert apply_accepted([slower()], [entry()], {COMMIT}, TODAY)[0][0].accepted == entry()
    (found,), notes = apply_accepted([slower()], [old], {COMMIT}, TODAY)
    assert found.accepted is None
    assert notes == (f"accepted: 'wide' at {COMMIT} expired on 2027-01-30",)


def test_an_expired_entry_is_no_note_if_another_holds_or_nothing_would_be_covered() -> None:
    old = entry(expires=date(2027, 1, 30))
    (found,), notes = apply_accepted([slower()], [old, entry("*")], {COMMIT}, TODAY)
    assert (found.accepted, notes) == (entry("*"), ())
    assert apply_accepted([slower()], [old], {OTHER}, TODAY)[1] == ()
    assert apply_accepted([slower("narrow")], [old], {COMMIT}, TODAY)[1] == ()


@pytest.mark.parametrize(
    ("verdict", "covers"),
    [(Verdict.SLOWER, True), (Verdict.UNDECIDED, True), (Verdict.PASS, False), (Verdict.BROKEN, False)],
)
def test_only_slower_and_undecided_benchmarks_can_be_accepted(verdict: Verdict, covers: bool) -> None:
    (found,), _ = apply_accepted([slower(verdict=verdict)], [entry()], {COMMIT}, TODAY)
    assert (found.accepted is not None) is covers


@pytest.mark.parametrize(("is_worse", "covers"), [(True, True), (None, True), (False, False)])
def test_counters_are_covered_unless_they_are_better(is_worse: bool | None, covers: bool) -> None:
    (found,), _ = apply_accepted([change("counts tuned|mlp", is_worse)], [entry("counts *")], {COMMIT}, TODAY)
    assert (found.accepted is not None) is covers


def test_a_drift_is_covered_by_the_commit_that_began_it_also_outside_the_range() -> None:
    found, notes = apply_accepted([drift(COMMIT), drift(OTHER)], [entry(revision=COMMIT[:8])], {OTHER}, TODAY)
    assert [each.accepted is not None for each in found] == [True, False]
    assert notes == ()
