import math
import os

import pytest

from dpbench.cases.case import Case
from dpbench.cases.plan import Plan
from dpbench.cases.spec import Spec
from dpbench.jobs.sweep import Progress, _lost_warning, run, run_sweep
from dpbench.judge.least_samples import LEAST_S, MOST_S
from dpbench.records.record import Outcome
from dpbench.records.store import Store
from tests.fakes import FakeRunner, ScriptedClock, ended, ok_record
from tests.records.making import case, thin

CASES = [
    Case(variant=name, workload="mlp/tiny", batch=8, devices=("cpu", "cpu"), threads=2) for name in ("tuned", "naive")
]
ORDER = [(0, CASES[1]), (0, CASES[0]), (1, CASES[0]), (1, CASES[1])]
KEYS = [(case.id, round_) for round_, case in ORDER]


class ListOfRecords(list):
    @property
    def keys(self):
        return [record.key for record in self]


def sweep(child, order=ORDER, **options):
    launcher, records = FakeRunner(child), options.pop("records", ListOfRecords())
    run(order, run_id="r1", records=records, launch=launcher.launch, **options)
    return launcher, records


def measured(job):
    return ended(0, ok_record(job))


def test_every_job_gives_one_record_in_the_given_order():
    launcher, records = sweep(measured)
    assert records.keys == KEYS
    assert {record.run for record in records} == {"r1"}
    assert [(job.case.id, job.round) for job in launcher.jobs] == KEYS


def test_cases_that_are_done_are_left_out():
    _, records = sweep(measured, done={KEYS[0], KEYS[2]})
    assert records.keys == [KEYS[1], KEYS[3]]
    assert sweep(measured, done=set(KEYS))[1] == []


def test_a_failing_case_does_not_stop_the_sweep():
    ends = iter([ended(-11), ended(0, b"garbage"), ended(1)])
    _, records = sweep(lambda job: next(ends, None) or measured(job))
    assert [record.outcome for record in records] == [Outcome.CRASHED] * 3 + [Outcome.OK]
    assert records.keys == KEYS


def test_each_record_is_safe_before_the_next_child_starts():
    records = ListOfRecords()
    seen = []
    sweep(lambda job: (seen.append(len(records)), measured(job))[1], records=records)
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_error_of_the_launcher_stops_the_sweep_and_keeps_the_records(error):
    records = ListOfRecords()

    def child(job):
        if len(records) == 2:
            raise error
        return measured(job)

    with pytest.raises(error):
        sweep(child, records=records)
    assert records.keys == KEYS[:2]


def test_an_interrupted_sweep_says_so_and_has_what_it_measured(tmp_path):
    jobs = iter([measured, measured])

    def child(job):
        try:
            return next(jobs)(job)
        except StopIteration:
            raise KeyboardInterrupt from None

    runner, plan = FakeRunner(child), Plan(tuple(CASES), ())
    swept = run_sweep(Spec(rounds=2), plan, Store(tmp_path / "sweep-s.jsonl"), lambda _: None, runner=runner)
    assert (swept.is_interrupted, len(swept.records), runner.ended) == (True, 2, 1)
    rest = FakeRunner(measured)
    swept = run_sweep(Spec(rounds=2), plan, Store(tmp_path / "sweep-s.jsonl"), lambda _: None, runner=rest)
    assert (swept.is_interrupted, len(swept.records), len(rest.jobs)) == (False, 4, 2)


def test_a_store_that_fails_stops_the_sweep():
    class FullDisk:
        def append(self, record):
            raise OSError(28, "No space left on device")

    launcher = FakeRunner(measured)
    with pytest.raises(OSError, match="No space left"):
        run(ORDER, run_id="r1", records=FullDisk(), launch=launcher.launch)
    assert len(launcher.jobs) == 1


def timed(clock, fixed_s, sample_s=0.01):
    """A child that takes `fixed_s` of its variant, and samples of `sample_s` for as long as asked."""

    def child(job):
        count = max(20, math.ceil(job.sampling_s / sample_s))
        clock.advance(fixed_s[job.case.variant] + count * sample_s)
        return ended(0, ok_record(job, (sample_s,) * count))

    return child


def rounds_of(count):
    return [(round_, case) for round_ in range(count) for case in CASES]


def test_the_budget_holds_with_what_earlier_rounds_took():
    clock = ScriptedClock()
    child = timed(clock, {"tuned": 2.0, "naive": 6.0})
    launcher, records = sweep(child, rounds_of(10), budget_s=120.0, case_time_s=60.0, clock=clock)
    assert clock() == pytest.approx(120.0, abs=1.0)
    assert len(records) == 20
    assert min(job.sampling_s for job in launcher.jobs) > LEAST_S


def test_a_short_budget_drops_rounds_and_says_so_before_the_first_and_again_if_that_was_wrong():
    clock, notes = ScriptedClock(), []
    child = timed(clock, {"tuned": 2.0, "naive": 6.0})
    _, records = sweep(
        child,
        rounds_of(10),
        budget_s=50.0,
        clock=clock,
        progress=lambda now: now.note and notes.append((clock(), now.note, now.rounds)),
    )
    assert len(records) == 10
    assert clock() == pytest.approx(50.0, abs=1.0)
    words = "budget: 50 s is too short for 10 rounds of 2 cases: it takes"
    assert notes == [(0.0, f"{words} 6 rounds, about 43 s", 6), (10.0, f"{words} 5 rounds, about 50 s", 5)]


def test_a_budget_that_may_suffice_is_not_called_too_short_before_a_round_was_taken():
    clock, notes = ScriptedClock(), []
    child = timed(clock, {"tuned": 2.0, "naive": 2.0})
    sweep(child, rounds_of(5), budget_s=30.0, clock=clock, progress=lambda now: now.note and notes.append(now.note))
    assert not notes
    sweep(child, rounds_of(5), budget_s=28.0, clock=clock, progress=lambda now: now.note and notes.append(now.note))
    words = "budget: 28 s is too short for 5 rounds of 2 cases: it takes"
    assert notes == [f"{words} 3 rounds, about 22 s", f"{words} 4 rounds, about 24 s"]


def test_the_time_left_follows_the_cases_that_were_taken():
    clock, left = ScriptedClock(), []
    child = timed(clock, {"tuned": 9.0, "naive": 9.0})
    sweep(child, rounds_of(3), clock=clock, progress=lambda now: left.append((clock(), now.seconds_left)))
    after_first, after_round = left[1], left[2]
    guessed = left[0][1] / 6
    assert after_first == (10.0, pytest.approx(5 * (2 * guessed + 10.0) / 3))
    assert after_round == (20.0, pytest.approx(40.0))


def test_the_least_rounds_are_taken_beyond_the_budget():
    clock, notes = ScriptedClock(), []
    child = timed(clock, {"tuned": 2.0, "naive": 6.0})
    options = {"budget_s": 1.0, "clock": clock, "progress": lambda now: now.note and notes.append(now.note)}
    launcher, records = sweep(child, rounds_of(10), **options)
    assert len(records) == 6
    assert {job.sampling_s for job in launcher.jobs} == {LEAST_S}
    words = "budget: 1 s is too short for 10 rounds of 2 cases: it takes 3 rounds,"
    assert notes == [f"{words} about 22 s", f"{words} about 30 s"]


def test_a_machine_that_slows_down_loses_further_rounds():
    clock, notes = ScriptedClock(), []

    def child(job):
        clock.advance(2.0 if job.round < 2 else 8.0)
        return ended(0, ok_record(job, (0.05,) * 20))

    options = {"budget_s": 60.0, "clock": clock, "progress": lambda now: now.note and notes.append(now.note)}
    _, records = sweep(child, rounds_of(10), **options)
    assert (len(records), clock()) == (10, pytest.approx(56.0))
    assert notes == ["budget: 60 s is too short for 10 rounds of 2 cases: it takes 5 rounds, about 56 s"]


@pytest.mark.parametrize(("first_s", "later_s", "rounds"), [(20.0, 24.0, 3), (8.0, 11.0, 5), (40.0, 40.0, 3)])
def test_a_default_budget_settles_on_its_rounds_after_the_first_and_does_not_complain(first_s, later_s, rounds):
    """Later rounds are often slower than the first; a budget that was asked for would drop one of them."""
    clock, seen = ScriptedClock(), []

    def child(job):
        clock.advance((later_s if job.round else first_s) / 2)
        return ended(0, ok_record(job, (0.05,) * 20))

    _, records = sweep(child, rounds_of(5), budget_s=70.0, clock=clock, progress=seen.append, settles=True)
    assert len(records) == 2 * rounds
    assert not [now.note for now in seen if now.note]
    assert {now.rounds for now in seen if now.rounds_done} == {rounds}


def test_a_resumed_sweep_takes_the_round_that_it_began_and_counts_the_whole_ones():
    clock = ScriptedClock()
    done = {(case.id, round_) for round_ in range(3) for case in CASES} | {(CASES[0].id, 3)}
    child = timed(clock, {"tuned": 2.0, "naive": 6.0})
    _, records = sweep(child, rounds_of(10), budget_s=1.0, done=done, clock=clock)
    assert records.keys == [(CASES[1].id, 3)]


def test_a_child_has_its_time_limit_beside_its_samples():
    launcher, _ = sweep(measured, case_time_s=1.5, timeout_s=50.0, clock=ScriptedClock())
    assert [job.sampling_s for job in launcher.jobs] == [1.5] * 4
    assert launcher.timeouts_s == [MOST_S + 50.0] * 4
    assert sweep(measured, case_time_s=100.0, timeout_s=50.0)[0].timeouts_s == [150.0] * 4


def test_progress_counts_earlier_records_and_names_the_running_case():
    events: list[Progress] = []
    _, records = sweep(measured, done={KEYS[0]}, progress=events.append)
    assert [(event.done, event.total) for event in events] == [(1, 4), (2, 4), (2, 4), (3, 4), (4, 4)]
    assert [(event.rounds_done, event.rounds) for event in events] == [(0, 2), (1, 2), (1, 2), (1, 2), (2, 2)]
    assert [event.running for event in events] == [CASES[0], None, CASES[0], CASES[1], None]
    assert [event.last for event in events] == [None, records[0], None, records[1], records[2]]
    assert events[-1].seconds_left == 0.0


RECORDS = [thin(case("tuned"), number, (0.1,)) for number in range(4)]
CHANGES = {
    "nothing": (lambda path: None, 0),
    "cut in the middle of a line": (lambda path: os.truncate(path, path.stat().st_size - 10), 1),
    "emptied": (lambda path: os.truncate(path, 0), 4),
    "removed": (lambda path: path.unlink(), 4),
    "replaced": (lambda path: (path.unlink(), path.write_text("{}\n")), 4),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), 4),
    "read-only, which stops no open file": (lambda path: path.chmod(0o400), 0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_file_lacks_is_one_line(tmp_path, name):
    change, lost = CHANGES[name]
    with Store(tmp_path / "r.jsonl") as store:
        for record in RECORDS:
            store.append(record)
        change(store.path)
        warnings = _lost_warning(store, RECORDS)
    assert len(warnings) == (lost > 0)
    assert all(f"lacks {lost} of 4 records, such as {RECORDS[4 - lost].case.id}, round" in line for line in warnings)
