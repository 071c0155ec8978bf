"""One verdict from the findings of all tiers: which are accepted, which are noted, and what is left."""

from datetime import date

import pytest

from dpbench.cases.names import Mode
from dpbench.engine.messages import CountJobs, CountRecords
from dpbench.gate import prepare, sides, time_sides, words
from dpbench.gate.judgement import Accepted, Blame, Cause, CounterChange, Drift, TimeJudgement, Verdict
from dpbench.gate.prepare import GateRequest
from dpbench.gate.run import run_gate
from dpbench.gate.settings import Benchmark, Settings, Tolerances
from dpbench.gate.time_sides import Times
from dpbench.gate.verdict import apply_accepted, judged_counters, overall_verdict, timed_by, with_set_ups
from dpbench.gate.words import headline
from dpbench.judge.estimate import Estimate
from dpbench.records.count_record import CountRecord, Counts, Phase, PhaseCounts
from dpbench.records.record import Outcome
from tests.cli.repositories import git
from tests.fakes import ended
from tests.gate.test_count_sides import CASE
from tests.records.making import ENVIRONMENT
from tests.report.gate.making_gate import counter, drift, judged, time, unmeasured

ENTRY = Accepted(benchmark="*", revision="0123456789", reason="it had to be", expires=date(2027, 1, 1))


DOUBLE = Estimate(value=1.98, low=1.9, high=2.1)


def test_no_findings_pass():
    assert overall_verdict((), (), ()) == (Verdict.PASS, "nothing is slower")


@pytest.mark.parametrize(
    ("findings", "why"),
    [
        (
            ((counter(), counter(counter="x"), counter(benchmark="b")), (), ()),
            "3 counters are worse in 2 of 4 counted cases: forward operators 2,000 -> 2,001",
        ),
        (((), (time("a", "slower"), time("b"), time("c", "slower")), ()), "a by 1.0 %, c by 1.0 %"),
        (((), [time(name, "slower") for name in "abcde"], ()), "a by 1.0 %, b by 1.0 %, c by 1.0 % and 2 more"),
        (((), (), (drift(),)), "drifted: drifting"),
        (
            ((counter(),), (time("a", "slower"), time("b", "undecided")), (drift(),)),
            "a by 1.0 %; 1 counter is worse in 1 of 4 counted cases (counts tuned mlp/tiny): "
            "forward operators 2,000 -> 2,001; drifted: drifting",
        ),
    ],
)
def test_every_regression_is_named(findings, why):
    assert overall_verdict(*findings, counted_cases=4) == (Verdict.SLOWER, why)


def test_the_first_counter_whose_code_is_known_is_named_with_it():
    what = {"what": "f", "function": "forward", "lines": (7,), "text": "f()", "base": 0, "head": 1}
    blame = Blame(benchmark="x", counter="y", causes=(Cause(file="a/b.py", **what),))
    counters = counter(), counter(3, 4, benchmark="x", counter="y")
    assert overall_verdict(counters, (), (), blames=(blame,))[1].endswith("cases: y 3 -> 4, in forward at a/b.py:7")


@pytest.mark.parametrize(
    ("verdict", "fields", "why"),
    [
        ("slower", {"quantity": "mean", "mean": DOUBLE}, "a by 98.0 % in the mean"),
        ("slower", {"quantity": "later", "later": DOUBLE}, "a by 98.0 % in later steps"),
        ("slower", {"mean": DOUBLE}, "a by 1.0 %"),
        ("undecided", {}, "a by +0.0 % to +2.0 %"),
        ("undecided", {"quantity": "mean", "mean": DOUBLE}, "a by +90.0 % to +110.0 % in the mean"),
    ],
)
def test_the_quantity_that_decided_is_named_with_its_own_size(verdict, fields, why):
    assert overall_verdict((), (time("a", verdict, **fields), time("b")), ()) == (verdict, why)


def test_an_undecided_benchmark_without_times_is_named():
    assert overall_verdict((), (unmeasured("a", "undecided"),), ()) == (Verdict.UNDECIDED, "a not measured")


def test_a_tier_0_that_counted_nothing_is_undecided_with_its_reason_and_hides_no_regression():
    gap = "tier 0 counted none of 2 cases"
    assert overall_verdict((), (time("a"),), (), gap=gap) == (Verdict.UNDECIDED, gap)
    both = overall_verdict((), (time("a", "undecided"),), (), gap=gap)
    assert both == (Verdict.UNDECIDED, f"a by +0.0 % to +2.0 %; {gap}")
    assert overall_verdict((counter(),), (), (), gap=gap)[0] is Verdict.SLOWER


def test_new_benchmarks_pass_and_are_named_and_claim_nothing_alone():
    named = "new, with nothing to hold it against: a, b"
    assert overall_verdict((), (time("c"),), (), new="ab") == (Verdict.PASS, f"nothing is slower; {named}")
    assert overall_verdict((), (), (), new="ab", compared=False) == (Verdict.PASS, named)
    assert overall_verdict((), (time("c", "slower"),), (), new="ab") == (Verdict.SLOWER, "c by 1.0 %")


@pytest.mark.parametrize("is_worse", [False, None])
def test_counters_that_are_not_worse_pass(is_worse):
    assert overall_verdict((counter(is_worse=is_worse),), (), ())[0] is Verdict.PASS


def test_accepted_regressions_pass_and_are_counted():
    findings = (counter(accepted=ENTRY),), (time("a", "slower", accepted=ENTRY),), (drift(accepted=ENTRY),)
    assert overall_verdict(*findings) == (Verdict.PASS, "nothing is slower but what is accepted (3)")
    assert overall_verdict((), (time("a", "undecided", accepted=ENTRY),), ())[0] is Verdict.PASS
    assert overall_verdict((), (*findings[1], time("b", "slower")), ()) == (Verdict.SLOWER, "b by 1.0 %")


COMMIT, OTHER_COMMIT = "1f2e3d4" + "a" * 33, "1f2e3d4" + "b" * 33
TODAY = date(2027, 1, 31)


def entry(benchmark: str = "wide", revision: str = COMMIT, expires: date = TODAY) -> Accepted:
    return Accepted(benchmark=benchmark, revision=revision, reason="so", expires=expires)


def slower(benchmark: str = "wide", verdict: Verdict = Verdict.SLOWER) -> TimeJudgement:
    return TimeJudgement(benchmark=benchmark, verdict=verdict, why="", threshold=0.03, rounds=5, looks=1, cores="0")


def change(benchmark: str, is_worse: bool | None) -> CounterChange:
    return CounterChange(benchmark=benchmark, counter="forward.copies", base=1, head=2, is_worse=is_worse)


def drift_since(since_commit: str) -> Drift:
    return Drift(benchmark="wide", before_s=1, after_s=1.1, since_commit=since_commit, since="2027-01-01", points=8)


def test_an_entry_covers_its_benchmark_and_no_other_and_the_verdict_stays() -> None:
    judgements = (slower("wide"), slower("narrow"))
    covered, notes = apply_accepted(judgements, [entry()], {COMMIT}, TODAY)
    assert covered == (judgements[0].model_copy(update={"accepted": entry()}), judgements[1])
    assert covered[0].verdict is Verdict.SLOWER
    assert notes == ()


@pytest.mark.parametrize(
    ("pattern", "covers"), [("*", True), ("wi?e", True), ("w*", True), ("Wide", False), ("wid", False)]
)
def test_benchmarks_are_matched_as_file_names_are(pattern: str, covers: bool) -> None:
    (judgement,), _ = apply_accepted([slower()], [entry(pattern)], {COMMIT}, TODAY)
    assert (judgement.accepted is not None) is covers


@pytest.mark.parametrize(
    ("revision", "covers"),
    [(COMMIT, True), (COMMIT[:8], True), (COMMIT[:7], True), (COMMIT[:6], False), ("f" * 40, False), ("", False)],
)
def test_a_revision_is_a_commit_of_the_range_or_its_beginning(revision: str, covers: bool) -> None:
    (judgement,), notes = apply_accepted([slower()], [entry(revision=revision)], {COMMIT, "0" * 40}, TODAY)
    assert (judgement.accepted is not None) is covers
    assert notes == ()


def test_a_beginning_of_two_commits_covers_nothing_and_is_one_note() -> None:
    both, notes = apply_accepted([slower(), slower()], [entry(revision=COMMIT[:7])], {COMMIT, OTHER_COMMIT}, TODAY)
    assert [judgement.accepted for judgement in both] == [None, None]
    assert notes == (
        "accepted: 'wide' at 1f2e3d4 is ambiguous: 2 commits of base..head begin so; allowed: more digits",
    )


def test_an_entry_holds_on_its_last_day_and_is_a_note_after_it() -> None:
    old = entry(expires=date(2027, 1, 30))
    assert apply_accepted([slower()], [entry()], {COMMIT}, TODAY)[0][0].accepted == entry()
    (judgement,), notes = apply_accepted([slower()], [old], {COMMIT}, TODAY)
    assert judgement.accepted is None
    assert notes == (f"accepted: 'wide' at {COMMIT} expired on 2027-01-30",)


def test_an_expired_entry_is_no_note_if_another_holds_or_nothing_would_be_covered() -> None:
    old = entry(expires=date(2027, 1, 30))
    (judgement,), notes = apply_accepted([slower()], [old, entry("*")], {COMMIT}, TODAY)
    assert (judgement.accepted, notes) == (entry("*"), ())
    assert apply_accepted([slower()], [old], {OTHER_COMMIT}, TODAY)[1] == ()
    assert apply_accepted([slower("narrow")], [old], {COMMIT}, TODAY)[1] == ()


@pytest.mark.parametrize(
    ("verdict", "covers"),
    [(Verdict.SLOWER, True), (Verdict.UNDECIDED, True), (Verdict.PASS, False), (Verdict.BROKEN, False)],
)
def test_only_slower_and_undecided_benchmarks_can_be_accepted(verdict: Verdict, covers: bool) -> None:
    (judgement,), _ = apply_accepted([slower(verdict=verdict)], [entry()], {COMMIT}, TODAY)
    assert (judgement.accepted is not None) is covers


@pytest.mark.parametrize(("is_worse", "covers"), [(True, True), (None, True), (False, False)])
def test_counters_are_covered_unless_they_are_better(is_worse: bool | None, covers: bool) -> None:
    (counter_change,), _ = apply_accepted([change("counts tuned|mlp", is_worse)], [entry("counts *")], {COMMIT}, TODAY)
    assert (counter_change.accepted is not None) is covers


def test_a_drift_is_covered_by_the_commit_that_began_it_also_outside_the_range() -> None:
    drifts, notes = apply_accepted(
        [drift_since(COMMIT), drift_since(OTHER_COMMIT)], [entry(revision=COMMIT[:8])], {OTHER_COMMIT}, TODAY
    )
    assert [drifted.accepted is not None for drifted in drifts] == [True, False]
    assert notes == ()


CALLS, OTHER = "forward.python_calls", "counts convnet/tiny cpu*4"
TIMED = {"counts mlp/tiny cpu*4": ("a", "b"), "counts x": ("c",), OTHER: ()}


def calls(base=1000, head=1001, benchmark="counts mlp/tiny cpu*4", **fields):
    return counter(base, head, benchmark=benchmark, **{"counter": CALLS, **fields})


def timed(name, high, verdict="pass"):
    return time(name, verdict, ratio=Estimate(value=high - 0.01, low=high - 0.02, high=high))


def noted(changes, times):
    rows = judged_counters(changes, times, TIMED, Tolerances(tolerated=0, memory=0.01))
    assert [row.model_copy(update={"traded_for": None, "tolerated": False}) for row in rows] == list(changes)
    return [row.traded_for for row in rows]


HOST = ("forward.python_calls", "forward.python_lines", "backward.host_operators", "forward.waits")
EXACT = ("forward.operators", "forward.copies.sim:0->sim:1.count", "forward.host_calls.host_wait", "kept.malloc_bytes")


@pytest.mark.parametrize("name", [*HOST, *EXACT])
def test_work_of_the_host_is_worse_only_if_a_time_is_and_a_device_s_always(name):
    change = calls(1000, 2000, counter=name)
    expected = ["a, b"] if name in HOST else [None]
    assert noted([change], [timed("a", 1.01), timed("b", 0.9, "faster")]) == expected
    assert noted([change], [timed("a", 1.01), timed("b", 1.1, "undecided")]) == expected  # then the verdict is, too
    assert noted([change], [timed("a", 1.01), timed("b", 1.1, "slower")]) == [None]


@pytest.mark.parametrize("times", [[], [unmeasured("a", "pass")]])
def test_without_a_measured_time_work_of_the_host_is_worse(times):
    assert noted([calls()], times) == [None]


def test_a_case_that_no_benchmark_times_is_seen_by_all_of_them():
    times = [timed("a", 0.9), timed("c", 1.0)]
    assert noted([calls(10, 12, OTHER)], times) == ["a, c"]
    assert noted([calls(10, 12, OTHER)], [*times, timed("d", 1.2, "slower")]) == [None]


@pytest.mark.parametrize("name", ["uses.mixed.python_calls", f"{CALLS}.growth"])
def test_what_no_time_shows_is_noted_up_to_a_half_more(name):
    times = [timed("a", 0.9), timed("b", 1.0)]
    assert noted([calls(100, 150, counter=name), calls(100, 151, counter=name)], times) == ["a, b", None]


@pytest.mark.parametrize(
    ("set_up", "worse", "verdict"),
    [
        (1.4, "another", Verdict.UNDECIDED),
        (1.4, "counts mlp/tiny cpu*4", Verdict.SLOWER),
        (0.7, "another", Verdict.SLOWER),
        (None, "another", Verdict.SLOWER),
    ],
)
def test_a_longer_set_up_alone_makes_no_benchmark_slower(set_up, worse, verdict):
    slow = slower("speed").model_copy(update={"set_up": set_up})
    timed_cases = {"counts mlp/tiny cpu*4": ("speed",), "another": ("other",)}
    (judgement,) = with_set_ups([slow], [change(worse, is_worse=True)], timed_cases)
    assert judgement.verdict is verdict
    assert ("its set-up changed by +40 %" in judgement.why) == (verdict is Verdict.UNDECIDED)
    assert words.set_ups([judgement]) == (
        [f"speed: its set-up changed by {100 * (set_up - 1):+.0f} %"] if set_up else []
    )


@pytest.mark.parametrize("change", [calls(1001, 1000, is_worse=False), calls(accepted=ENTRY)])
def test_only_a_worse_counter_is_noted(change):
    assert noted([change], [timed("a", 0.9), timed("b", 0.9)]) == [None]


def test_a_case_is_timed_by_the_benchmarks_of_its_workload_in_its_mode():
    same, infer = (
        Benchmark(name=name, workload="mlp/tiny", batch=64, devices="cpu*4", mode=mode, threshold=0.03)
        for name, mode in (("same", Mode.TRAIN), ("infer", Mode.INFER))
    )
    other = same.model_copy(update={"name": "other", "workload": "mlp/small"})
    assert timed_by({"counted": CASE}, [same, infer, other]) == {"counted": ("same",)}


def test_the_verdict_says_what_is_noted_and_passes_only_if_nothing_else_is_worse():
    times = [timed("a", 0.95), timed("b", 0.95)]
    changes = judged_counters([calls(), calls(counter="forward.operators")], times, TIMED, Tolerances(tolerated=0))
    why = "nothing is slower; the step times are not longer, with 1 more in forward.python_calls"
    assert overall_verdict(changes[:1], times, ()) == ("pass", why)
    assert overall_verdict(changes, times, ()) == (
        "slower",
        "1 counter is worse in 1 of 1 counted cases (counts mlp/tiny cpu*4): forward.operators 1,000 -> 1,001",
    )


FASTER = [timed("a", 0.9, "faster"), timed("b", 1.009)]


def test_the_gain_is_named_beside_a_counter_that_is_worse():
    assert overall_verdict([calls(counter="forward.operators")], FASTER, ())[1].endswith(
        "-> 1,001; faster: a by 11.0 %"
    )


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ([], "slower"),
        ([calls(90, 80, OTHER, counter="forward.operators", is_worse=False)], "undecided"),
        ([calls(90, 80, OTHER, counter="forward.operators", is_worse=None)], "slower"),
        (
            [
                calls(90, 80, OTHER, counter="forward.operators", is_worse=False),
                calls(1, 2, counter="forward.copies.sim:0->sim:1.count"),
            ],
            "slower",
        ),
    ],
)
def test_without_times_a_few_more_calls_beside_better_counters_are_undecided(others, verdict):
    got, why = overall_verdict([calls(), *others], (), (), is_timed=False)
    assert got == verdict
    assert "forward.python_calls" in why


def test_a_machine_that_is_too_busy_for_times_leaves_work_of_the_host_undecided():
    assert overall_verdict([calls()], (), (), is_timed=False, too_busy=True, gap="busy")[0] == "undecided"
    slower = [calls(counter="forward.operators")]
    assert overall_verdict(slower, (), (), is_timed=False, too_busy=True, gap="busy")[0] == "slower"


def test_more_memory_alone_is_called_so():
    memory = calls(100, 120, counter="backward.peak_bytes.sim:0")
    verdict, why = overall_verdict([memory], (), ())
    assert (verdict, why.partition(":")[0]) == (
        "slower",
        "1 counter is larger, of memory, in 1 of 1 counted cases (counts mlp/tiny cpu*4)",
    )
    more, reason = "More memory: for a reason of slower", "Slower: for a reason of slower"
    assert headline(judged("slower", counters=(memory,))) == more
    assert headline(judged("slower", counters=(memory, calls()))) == reason
    assert headline(judged("slower", counters=(memory,), times=(timed("a", 1.1, "slower"),))) == reason
    assert headline(judged("slower", counters=(memory,), drifts=(drift(),))) == reason
    assert headline(judged("slower")) == reason
    assert headline(judged("undecided", counters=(memory,))) == "Undecided: for a reason of undecided"


def test_a_faster_head_pays_for_a_little_memory():
    peak = "backward.peak_bytes.sim:0"
    assert noted([calls(100, 105, counter=peak), calls(100, 106, counter=peak)], FASTER) == ["a", None]
    assert noted([calls(100, 105, counter=peak)], [timed("a", 0.9)]) == [None]  # none is surely faster
    assert noted([calls(100, 105, counter=peak)], [*FASTER, timed("c", 1.1, "undecided")]) == [None]
    assert noted([calls(100, 101, counter="value (bytes)")], FASTER) == [None]  # a suite's own value


def test_without_times_a_pass_says_that_none_was_measured():
    tolerated = calls().model_copy(update={"tolerated": True})
    assert overall_verdict([tolerated], (), (), is_timed=False, counted_cases=3) == (
        "pass",
        "no time was measured, and no counter is worse; tolerated, with 1 more in forward.python_calls",
    )


def counted(command, stdin_text, timeout_s):
    """A launcher: head makes one Python call more than base."""
    records = []
    for job in CountJobs.model_validate_json(stdin_text).jobs:
        forward = PhaseCounts(python_calls=100 + str(job.folder).endswith("head"))
        counts = Counts(phases={Phase.FORWARD: forward})
        records.append(CountRecord(case=job.case, outcome=Outcome.OK, counts=counts, environment=ENVIRONMENT))
    return ended(0, CountRecords(records=tuple(records)).model_dump_json().encode())


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        (((0, 1), 0.97, 0, 0.5), "pass"),
        (((0, 1), 1.02, 0, 0.5), "pass"),
        (((0,), 0.97, 0, 9.0), "slower"),
        (((0,), 0.97, 0.01, 9.0), "pass"),
        (((0, 1), 1.02, 0.01, 0.5), "pass"),
        (((0, 1), 1.02, 0.01, 9.0), "undecided"),  # nine processes for each core: no time is taken
    ],
)
def test_a_whole_gate_notes_a_call_that_times_do_not_show_or_tolerates_it(tmp_path, monkeypatch, asked, verdict):
    tiers, high, tolerated, wanting = asked
    (tmp_path / "mine.py").write_text("def step(): ...\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    for message in ("base", "head"):
        git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", message)
    monkeypatch.chdir(tmp_path)
    settings = Settings(
        benchmarks=(Benchmark(name="a", workload="mine:step", batch=8, devices="cpu*2", threshold=0.03),),
        counts=Tolerances(tolerated=tolerated),
    )
    monkeypatch.setattr(prepare, "timed_settings", lambda *_: (("cpu",), settings))
    monkeypatch.setattr(prepare, "read_settings", lambda *_: settings)
    monkeypatch.setattr(prepare, "wait_for_quiet", lambda *_: wanting)
    monkeypatch.setattr(sides, "compile_sides", lambda *_: None)
    monkeypatch.setattr(time_sides, "measure_times", lambda *_, **__: Times((timed("a", high),)))
    judgement = run_gate(GateRequest("HEAD~1", tiers=tiers), launch=counted)
    assert judgement.verdict == verdict
    assert ("too busy for times" in judgement.why) == (verdict == "undecided")
    assert [(row.base, row.head, row.traded_for) for row in judgement.counters] == [
        (100, 101, "a" if verdict == "pass" and not tolerated else None)
    ] * 2
    assert {row.tolerated for row in judgement.counters} == {tolerated > 0}
