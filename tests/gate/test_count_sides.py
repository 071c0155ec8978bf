"""Tier 0, with counts made by hand: what differs, and how it grows."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpbench.cases.case import Case
from dpbench.cases.variants import VariantName
from dpbench.engine.messages import CountJob, CountJobs, CountRecords
from dpbench.errors import GateError
from dpbench.gate import count_sides as counts
from dpbench.gate.benchmarks import Benchmarks
from dpbench.gate.count_sides import Counters, changes, compare_counters, gap_of, growth_changes
from dpbench.gate.counters import is_worse
from dpbench.gate.settings import Benchmark, CountedStep, Settings, Uses
from dpbench.gate.sides import Sides
from dpbench.gate.tier0_cases import Doubling, Tier0, own_jobs, tier0_of, wrapper_jobs
from dpbench.records.count_record import CountRecord, Counts, Dependencies, Phase, PhaseCounts, Traffic
from dpbench.records.record import Outcome
from tests.fakes import ended
from tests.records.making import ENVIRONMENT

CASE = Case(variant=VariantName.TUNED, workload="mlp/tiny", batch=8, devices=("sim:0", "sim:1"), threads=1)

NAME = "counts mlp/tiny sim:0+sim:1"


def record(operators=3, copies=None, case=CASE, **dependencies):
    defaults = dict.fromkeys(Dependencies.model_fields, 10)
    links = {link: Traffic(count=1, size_bytes=size_bytes) for link, size_bytes in (copies or {}).items()}
    counts = Counts(
        phases={Phase.FORWARD: PhaseCounts(operators=operators, copies=links)},
        dependencies=Dependencies(**defaults | dependencies),
    )
    return CountRecord(case=case, outcome=Outcome.OK, counts=counts, environment=ENVIRONMENT)


def failed(outcome, reason):
    return CountRecord(case=CASE, outcome=outcome, reason=reason)


def changed(old, new):
    return [(change.counter, change.base, change.head, change.is_worse) for change in changes("a case", old, new)]


def test_equal_counts_are_no_change():
    assert changed(record(), record()) == []


@pytest.mark.parametrize(("old", "new", "worse"), [(3, 4, True), (4, 3, False)])
def test_an_operator_more_is_worse_and_one_less_is_not(old, new, worse):
    (change,) = changes("a case", record(old), record(new))
    assert change.benchmark == "a case"
    assert (change.counter, change.base, change.head, change.is_worse) == ("forward.operators", old, new, worse)


def test_a_link_that_appears_is_worse_and_one_that_vanishes_is_not():
    link = {"sim:0->sim:1": 64}
    names = [f"forward.copies.sim:0->sim:1.{what}" for what in ("count", "size_bytes")]
    assert changed(record(), record(copies=link)) == [(names[0], None, 1, True), (names[1], None, 64, True)]
    assert changed(record(copies=link), record()) == [(names[0], 1, None, False), (names[1], 64, None, False)]


@pytest.mark.parametrize("name", Dependencies.model_fields)
def test_more_is_better_only_for_gradients_that_are_ready_early(name):
    more_is_worse = name not in ("ready_at_half_bytes", "startable_at_half_bytes", "issued_at_half_bytes")
    assert changed(record(), record(**{name: 11})) == [(f"dependencies.{name}", 10, 11, more_is_worse)]
    fewer = changed(record(**{name: 11}), record())
    assert (f"dependencies.{name}", 11, 10, not more_is_worse) in fewer


def test_gradients_ready_early_are_compared_by_their_share_of_the_reduced_bytes():
    ready, reduced = "dependencies.ready_at_half_bytes", "dependencies.reduced_bytes"
    half_of_fewer = {ready: 5, reduced: 10}
    assert not is_worse(ready, {ready: 10, reduced: 20}, half_of_fewer)
    assert is_worse(ready, {ready: 12, reduced: 20}, half_of_fewer)
    assert not is_worse(ready, {ready: 8, reduced: 20}, half_of_fewer)


def lines(count):
    counts = Counts(phases={Phase.FORWARD: PhaseCounts(python_lines=count)})
    return CountRecord(case=CASE, outcome=Outcome.OK, counts=counts, environment=ENVIRONMENT)


@pytest.mark.parametrize(
    ("old", "new", "worse"),
    [
        (1000, 1500, False),  # 500 lines
        (1000, 1501, True),
        (20_000, 21_000, False),  # 5 %
        (20_000, 21_001, True),
        (1000, 400, False),
    ],
)
def test_lines_are_worse_above_5_percent_and_500(old, new, worse):
    is_worse_by_counter = {change.counter: change.is_worse for change in changes("a case", lines(old), lines(new))}
    assert is_worse_by_counter.get("forward.python_lines", False) is worse


@pytest.mark.parametrize(("new", "worse"), [(10_100, None), (10_101, True), (9_000, False)])
def test_a_piece_that_is_passed_on_is_worse_above_1_percent(new, worse):
    old, new = record(passed_on_bytes=10_000), record(passed_on_bytes=new)
    is_worse_by_counter = {change.counter: change.is_worse for change in changes("a case", old, new)}
    assert is_worse_by_counter.get("dependencies.passed_on_bytes") is worse


def counting(base, head):
    """Return a launcher that answers for base's and head's folder, and the list of its jobs."""
    asked = []

    def launch(command, stdin_text, timeout_s):
        jobs = CountJobs.model_validate_json(stdin_text).jobs
        asked.append([job.folder for job in jobs])
        answers = {"/b": list(base), "/h": list(head)}
        return ended(
            0, CountRecords(records=tuple(answers[job.folder].pop(0) for job in jobs)).model_dump_json().encode()
        )

    return launch, asked


def compared(base, head):
    launch, asked = counting(base, head)
    names = [NAME, "other"][: len(base)]
    counters = compare_counters(
        Tier0(dict.fromkeys(names, CountJob(case=CASE))), Sides(Path("/b"), Path("/h"), launch), {}
    )
    assert asked[0] == ["/b"] * len(base) + ["/h"] * len(base)  # then those with a worse counter, for the details
    return counters


USES = Uses(file="mine/uses.py").case(Path("/work"))


def using(*values):
    return [
        CountRecord(
            case=USES,
            outcome=Outcome.OK,
            environment=ENVIRONMENT,
            counts=Counts(phases={}, uses={"left.threads": value}),
        )
        for value in values
    ]


@pytest.mark.parametrize(("again", "is_worse"), [(2, True), (1, False)])
def test_a_use_that_differs_is_worse_if_it_differs_alike_again(again, is_worse):
    records = {"/b": using(1, 1, 1), "/h": using(2, again, 2)}  # the last are those with details

    def launch(command, stdin_text, timeout_s):
        jobs = CountJobs.model_validate_json(stdin_text).jobs
        answer = CountRecords(records=tuple(records[job.folder].pop(0) for job in jobs))
        return ended(0, answer.model_dump_json().encode())

    counters = compare_counters(Tier0({"mine": CountJob(case=USES)}), Sides(Path("/b"), Path("/h"), launch), {})
    assert [change.counter for change in counters.changes] == ["uses.left.threads"] * is_worse
    assert bool(counters.notes) is not is_worse


def test_base_and_head_are_counted_and_compared_case_by_case():
    counters = compared((record(1), record(2)), (record(1), record(5)))
    assert [(change.base, change.head) for change in counters.changes] == [(2, 5)]
    assert (counters.cases, counters.notes) == (2, ())


def test_a_case_that_neither_can_count_is_a_note_and_not_a_case():
    skipped = failed(Outcome.SKIPPED, "no such operator")
    counters = compared((skipped, record()), (skipped, record(4)))
    assert counters.notes == ("counts mlp/tiny sim:0+sim:1: not counted: no such operator",)
    assert (counters.cases, len(counters.changes)) == (1, 1)


def test_a_simulator_that_counts_no_case_is_a_gap_although_cpu_lanes_are_counted():
    """As with a torch that the simulator does not know."""
    on_cpu = CASE.model_copy(update={"devices": ("cpu", "cpu")})
    skipped = failed(Outcome.SKIPPED, "devices: this torch is older")
    gap = gap_of([CASE, CASE, on_cpu], [skipped, skipped])
    assert gap == (
        "tier 0 counted none of 2 cases on simulated devices: devices: this torch is older; run with --tiers 1"
    )
    assert gap_of([CASE, CASE, on_cpu], [skipped]) is None
    assert gap_of([on_cpu], []) is None
    assert compared((skipped, record()), (skipped, record())).gap is None
    counters = compared((skipped, skipped), (skipped, skipped))
    assert (counters.gap, counters.notes) == (gap, ())  # the reason is there once


def test_a_reason_of_many_cases_is_one_note():
    skipped = [failed(Outcome.SKIPPED, "no such operator")] * 40
    launch, _ = counting([*skipped, record()], [*skipped, record()])
    jobs = dict.fromkeys([f"case {i}" for i in range(41)], CountJob(case=CASE))
    counters = compare_counters(Tier0(jobs), Sides(Path("/b"), Path("/h"), launch), {})
    assert counters.notes == ("case 0 and 39 more: not counted: no such operator",)


@pytest.mark.parametrize("outcome", [Outcome.SKIPPED, Outcome.CRASHED, Outcome.TIME_OUT])
@pytest.mark.parametrize("side", ["base", "head"])
def test_a_case_that_one_side_cannot_count_raises_with_that_side(outcome, side):
    sides = [(record(),), (failed(outcome, "why\nTraceback\nthe last line"),)]
    base, head = sides if side == "head" else reversed(sides)
    with pytest.raises(GateError) as caught:
        compared(base, head)
    assert str(caught.value).startswith(f"{side}: counts mlp/tiny sim:0+sim:1: {outcome.replace('_', ' ')}: why")
    assert "\n" not in str(caught.value)


def test_the_error_names_the_file_and_line_of_the_commit():
    """The last line of a SyntaxError does not name the file."""
    why = (
        'ended\n  File "/usr/lib/a.py", line 1\n  File "/h/in/it.py", line 147\n    def (:\nSyntaxError: invalid syntax'
    )
    with pytest.raises(GateError, match=r"ended: SyntaxError: invalid syntax \(in/it\.py, line 147\)$"):
        compared((record(),), (failed(Outcome.CRASHED, why),))
    with pytest.raises(GateError, match=r"ended: SyntaxError: invalid syntax$"):
        compared((failed(Outcome.CRASHED, why),), (record(),))


def test_a_crash_of_both_sides_raises_too():
    with pytest.raises(GateError, match=r"^base: "):
        compared((failed(Outcome.CRASHED, "x"),), (failed(Outcome.CRASHED, "x"),))


def test_a_child_without_an_answer_raises_in_one_line():
    with pytest.raises(GateError, match=r"^counting failed: ended with exit status 1 no torch$"):
        compare_counters(
            Tier0({NAME: CountJob(case=CASE)}),
            Sides(Path("/b"), Path("/h"), lambda *_: ended(1, tail=b"no torch\n")),
            {},
        )


def test_the_cases_are_the_wrappers_and_the_users_own_steps_on_both_kinds_of_lanes():
    own = Benchmark(name="own", workload="mine:make", batch=6, devices="cpu*3", threshold=0.03)
    of_machine = own.model_copy(update={"name": "of_machine", "devices": None})
    built_in = Benchmark(name="built_in", workload="mlp/tiny", batch=6, threshold=0.03)
    jobs = own_jobs([own, of_machine, built_in, own])
    assert [(name, job.case.workload, job.case.devices, job.case.batch) for name, job in jobs.items()] == [
        ("own, on 3 simulated devices", "mine:make", ("sim:0", "sim:1", "sim:2"), 6),
        ("own, on 3 CPU lanes", "mine:make", ("cpu",) * 3, 6),
        ("of_machine, on 2 simulated devices", "mine:make", ("sim:0", "sim:1"), 6),
        ("of_machine, on 2 CPU lanes", "mine:make", ("cpu",) * 2, 6),
    ]
    assert {job.case.variant.name for job in wrapper_jobs().values()} == {VariantName.TUNED}
    assert len({job.case.workload for job in wrapper_jobs().values()}) > 1


def test_a_table_adds_a_step_or_asks_more_of_one_and_its_doubling_is_compared_by_growth():
    more = CountedStep(workload="mlp/tiny", devices="cpu*2", more_steps=9)
    grown = CountedStep(workload="many/tiny", devices="cpu*2", mode="infer", doubled_devices="cpu*4")
    settings = Settings(counted=(more, grown), uses=(Uses(file="a.py"),))
    names = ["counts mlp/tiny cpu*2", "counts many/tiny cpu*2 infer", "counts many/tiny cpu*4 infer", "a.py cpu*2"]
    tier0 = tier0_of(settings, {names[0]: CountJob(case=CASE)})
    assert tier0.jobs.keys() == set(names)
    assert tier0.jobs[names[0]].more_steps == 9
    assert (tier0.doublings, tier0.grown) == ((Doubling(*names[1:3]),), set(names[1:3]))
    assert tier0.jobs_by_benchmark()[f"growth from {names[1]}"] == tier0.jobs[names[2]]
    assert tier0_of(settings, has_wrapper=False).jobs.keys() == {names[3]}


SMALL, LARGE = "counts many/tiny cpu*2", "counts many/small cpu*2"
DOUBLING = Doubling(SMALL, LARGE)


def records(small, large):
    return {SMALL: record(small), LARGE: record(large)}


@pytest.mark.parametrize(
    ("head", "is_faster"),
    [
        ((100, 180), False),
        ((110, 190), False),  # a constant more
        ((10, 90), False),  # a constant less: the ratio of the totals is nine, not 1.8
        ((100, 184), False),
        ((100, 185), True),
        ((90, 175), True),
    ],
)
def test_a_growth_is_worse_if_it_is_more_than_5_percent_faster(head, is_faster):
    growths = growth_changes(records(100, 180), records(*head), [DOUBLING])
    expected = [(f"growth from {SMALL}", "forward.operators.growth", 80, head[1] - head[0], True)]
    got = [(growth.benchmark, growth.counter, growth.base, growth.head, growth.is_worse) for growth in growths]
    assert got == (expected if is_faster else [])


def test_a_growth_is_one_of_the_gates_changes_and_its_cases_are_not():
    jobs = dict.fromkeys((SMALL, LARGE), CountJob(case=CASE))
    base, head = (list(records(100, large).values()) * 2 for large in (180, 400))
    launch, _ = counting(base, head)
    tier0 = Tier0(jobs, (DOUBLING,), frozenset(jobs))
    counters = compare_counters(tier0, Sides(Path("/b"), Path("/h"), launch), {})
    assert {change.benchmark for change in counters.changes} == {f"growth from {SMALL}"}


def test_a_counter_that_grew_not_at_all_may_begin_and_a_case_that_was_not_counted_has_no_growth():
    def grown(old, new):
        return [(growth.base, growth.head) for growth in growth_changes(old, new, [DOUBLING])]

    assert grown(records(3, 3), records(3, 4)) == [(0, 1)]
    assert grown(records(9, 3), records(9, 9)) == []
    assert grown(records(100, 180), {SMALL: record(100)}) == []


@pytest.mark.parametrize(
    ("tiers", "counters", "is_refused"),
    [
        ((0,), Counters(notes=("own: not counted: why",)), True),
        ((0, 1), Counters(notes=("own: not counted: why",)), False),
        ((0,), Counters(notes=("own: not counted: why",), gap="this torch is older"), False),
        ((0,), Counters(cases=1), False),
    ],
)
def test_a_tier_0_alone_that_counts_nothing_breaks_the_gate(monkeypatch, tiers, counters, is_refused):
    own = Benchmark(name="own", workload="mine:make", batch=6, devices="cpu*3", threshold=0.03)
    prepared, sides = (
        SimpleNamespace(tiers=tiers, settings=Settings(), repository=SimpleNamespace(root=Path("/"))),
        Sides(Path("/b"), Path("/h"), None),
    )
    monkeypatch.setattr(counts, "compare_counters", lambda *_: counters)
    with pytest.raises(GateError, match=r"^--tiers: 0 counted nothing: own: ") if is_refused else nullcontext():
        assert counts.count_sides(prepared, Benchmarks(both=(own,)), sides, lambda *_: None) == counters
