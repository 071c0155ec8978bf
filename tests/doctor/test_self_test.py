import pytest

from dpbench.doctor.self_test import findings_of, self_test, twin
from dpbench.sweep.machine_info import MachineInfo
from tests.fakes import FakeLauncher, ScriptedClock, ended, ok_record

MACHINE = MachineInfo(python="3.11", torch="2.13", cpu_model="a CPU", cores=2, memory_bytes=1)


def measured(child_s, samples_s=lambda job: (0.1, 0.1), seconds=60.0):
    clock = ScriptedClock()

    def child(job):
        clock.advance(child_s)
        return ended(0, ok_record(job, samples_s(job)))

    launcher = FakeLauncher(child)
    return {f.what: f for f in self_test(MACHINE, seconds=seconds, launch=launcher, clock=clock)}, launcher.jobs, clock


def test_as_many_pairs_as_there_is_time_for_and_no_more():
    _, jobs, clock = measured(child_s=4.0)
    assert len(jobs) == 14
    assert clock() <= 60.0
    assert len(measured(child_s=0.01)[1]) == 40
    assert len(measured(child_s=50.0)[1]) == 6


def test_all_are_one_case_and_the_order_in_pairs_is_by_lot():
    _, jobs, _ = measured(child_s=1.0)
    assert {job.case for job in jobs} == {twin(MACHINE)}
    orders = {first.round < second.round for first, second in zip(jobs[::2], jobs[1::2], strict=True)}
    assert orders == {True, False}
    assert sorted(job.round for job in jobs) == list(range(len(jobs)))


def test_a_quiet_box_sees_small_changes():
    found, _, _ = measured(2.0, lambda job: (0.1 * (1 + 0.001 * (job.round // 2 % 3)),) * 5)
    assert {f.severity for f in found.values()} == {"ok"}
    assert found["ratio of equal cases"].value.startswith("1.000 [")


@pytest.mark.parametrize(("spread", "severity"), [(0.08, "note"), (0.5, "unreliable")])
def test_a_noisy_box_does_not(spread, severity):
    found, _, _ = measured(4.0, lambda job: (0.1 * (1 + spread * (job.round // 2 % 3)),))
    assert found["smallest change seen in 1 minute"].severity == severity


def test_equal_cases_that_look_unequal_are_noted():
    found, _, _ = measured(4.0, lambda job: (0.1 * (1 + 0.1 * (job.round % 2) + 0.001 * (job.round // 2 % 3)),))
    assert found["ratio of equal cases"].severity == "note"


def test_a_case_that_fails_ends_it_and_is_told():
    launcher = FakeLauncher(lambda job: ended(-11))
    (found,) = self_test(MACHINE, launch=launcher, clock=ScriptedClock())
    assert len(launcher.jobs) == 2
    assert found.severity == "unreliable"
    assert "SIGSEGV" in found.value


def test_progress_is_told_with_the_time_left():
    told, clock = [], ScriptedClock()

    def child(job):
        clock.advance(5.0)
        return ended(0, ok_record(job))

    self_test(MACHINE, launch=FakeLauncher(child), clock=clock, progress=told.append)
    assert [p.done for p in told] == sorted(p.done for p in told)
    assert told[0].seconds_left == 60.0
    assert told[-1].done == told[-1].total


def test_two_rounds_of_each_at_least_make_an_estimate():
    with pytest.raises(ValueError, match="two or more"):
        findings_of([])
