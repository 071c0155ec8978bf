import math

import pytest

from dpbench.results.record import Outcome
from dpbench.run.messages import Job
from dpbench.run.runner import LEAST_S, Progress, run
from dpbench.sweep.case import Case
from tests.fakes import FakeLauncher, ScriptedClock, ended, ok_record

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
    launcher, records = FakeLauncher(child), options.pop("records", ListOfRecords())
    run(order, run_id="r1", records=records, launch=launcher, **options)
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


def test_a_store_that_fails_stops_the_sweep():
    class FullDisk:
        def append(self, record):
            raise OSError(28, "No space left on device")

    launcher = FakeLauncher(measured)
    with pytest.raises(OSError, match="No space left"):
        run(ORDER, run_id="r1", records=FullDisk(), launch=launcher)
    assert len(launcher.jobs) == 1


def test_the_budget_holds_with_the_startup_times_of_earlier_children():
    clock = ScriptedClock()
    startup_s = {"tuned": 2.0, "naive": 6.0}

    def child(job):
        duration_s = startup_s[job.case.variant] + job.budget_s
        clock.advance(duration_s)
        return ended(0, ok_record(job, (job.budget_s,)), duration_s)

    order = [(round_, case) for round_ in range(10) for case in CASES]
    launcher, _ = sweep(child, order, budget_s=120.0, case_time_s=60.0, clock=clock)
    assert clock() == pytest.approx(120.0)
    assert min(job.budget_s for job in launcher.jobs) > LEAST_S


def test_time_that_a_child_does_not_use_goes_to_later_ones():
    clock = ScriptedClock()

    def child(job):
        clock.advance(1.0)
        return ended(0, ok_record(job, (0.5,)), 1.0)

    launcher, _ = sweep(child, budget_s=40.0, case_time_s=60.0, clock=clock)
    budgets_s = [job.budget_s for job in launcher.jobs]
    assert budgets_s == sorted(budgets_s)
    assert budgets_s[-1] == pytest.approx(37.0 - 0.5)


@pytest.mark.parametrize(("budget_s", "child_s"), [(0.0, LEAST_S), (math.inf, 1.5)])
def test_a_childs_sampling_time_has_bounds(budget_s, child_s):
    launcher, _ = sweep(measured, budget_s=budget_s, case_time_s=1.5, timeout_s=50.0, clock=ScriptedClock())
    assert [job.budget_s for job in launcher.jobs] == [child_s] * 4
    assert launcher.timeouts_s == [child_s + 50.0] * 4


def test_progress_counts_earlier_records_and_names_the_running_case():
    events: list[Progress] = []
    _, records = sweep(measured, done={KEYS[0]}, progress=events.append)
    assert [(event.done, event.total) for event in events] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [event.running for event in events] == [*(case for _, case in ORDER[1:]), None]
    assert [event.last for event in events] == [None, *records]
    assert [event.seconds_left for event in events][1:] == [2.0, 1.0, 0.0]


def test_the_workers_command_can_be_replaced():
    commands = []

    def launch(command, text, timeout_s):
        commands.append(command)
        return measured(Job.model_validate_json(text))

    run(ORDER[:1], run_id="r1", records=ListOfRecords(), worker=("my", "worker"), launch=launch)
    assert commands == [["my", "worker"]]
