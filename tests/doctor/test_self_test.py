import pytest

from dpbench.cases.machine_info import MachineInfo
from dpbench.doctor.self_test import findings_of, self_test, self_test_case
from tests.fakes import FakeRunner, ScriptedClock, ended, ok_record

MACHINE = MachineInfo(python="3.11", torch="2.13", cpu_model="a CPU", cores=2, memory_bytes=1)


def measured(child_s, samples_s=lambda job: (0.1, 0.1), seconds=60.0):
    clock = ScriptedClock()

    def child(job):
        clock.advance(child_s)
        return ended(0, ok_record(job, samples_s(job)))

    launcher = FakeRunner(child)
    return {f.what: f for f in self_test(MACHINE, seconds=seconds, runner=launcher, clock=clock)}, launcher.jobs, clock


def test_it_measures_as_many_pairs_as_fit_the_time():
    _, jobs, clock = measured(child_s=4.0)
    assert len(jobs) == 14
    assert clock() <= 60.0
    assert len(measured(child_s=0.01)[1]) == 40
    assert len(measured(child_s=50.0)[1]) == 6


def test_all_rounds_are_one_case_and_the_order_within_pairs_is_random():
    _, jobs, _ = measured(child_s=1.0)
    assert {job.case for job in jobs} == {self_test_case(MACHINE)}
    orders = {first.round < second.round for first, second in zip(jobs[::2], jobs[1::2], strict=True)}
    assert orders == {True, False}
    assert sorted(job.round for job in jobs) == list(range(len(jobs)))


def test_on_a_quiet_machine_all_findings_are_ok():
    findings, _, _ = measured(2.0, lambda job: (0.1 * (1 + 0.001 * (job.round // 2 % 3)),) * 5)
    assert {f.severity for f in findings.values()} == {"ok"}
    assert findings["ratio of equal cases"].value.startswith("1.000 [")


@pytest.mark.parametrize(("spread", "severity"), [(0.08, "note"), (0.5, "unreliable")])
def test_on_a_noisy_machine_neither_the_noise_nor_the_detectable_change_is_ok(spread, severity):
    findings, _, _ = measured(4.0, lambda job: (0.1 * (1 + spread * (job.round // 2 % 3)),))
    limit = {"note": "over 5 %", "unreliable": "over 20 %"}[severity]
    for what in ("smallest change seen in 1 minute", "noise between processes"):
        assert findings[what].severity == severity
        assert f"the smallest change seen is {limit}, so " in findings[what].advice


def test_equal_cases_that_look_unequal_are_noted():
    findings, _, _ = measured(4.0, lambda job: (0.1 * (1 + 0.1 * (job.round % 2) + 0.001 * (job.round // 2 % 3)),))
    assert findings["ratio of equal cases"].severity == "note"


def test_a_failed_round_ends_the_test_and_is_the_finding():
    launcher = FakeRunner(lambda job: ended(-11))
    (finding,) = self_test(MACHINE, runner=launcher, clock=ScriptedClock())
    assert len(launcher.jobs) == 2
    assert finding.severity == "unreliable"
    assert "SIGSEGV" in finding.value


def test_progress_is_reported_with_the_time_left():
    reported, clock = [], ScriptedClock()

    def child(job):
        clock.advance(5.0)
        return ended(0, ok_record(job))

    self_test(MACHINE, runner=FakeRunner(child), clock=clock, progress=reported.append)
    assert [p.done for p in reported] == sorted(p.done for p in reported)
    assert reported[0].seconds_left == 60.0
    assert [p.seconds_left for p in reported if p.running is None] == [60.0 - 5.0 * n for n in range(1, 13)]
    assert {p.rounds for p in reported[1:]} == {12}
    assert reported[-1].done == reported[-1].total


def test_fewer_than_two_rounds_of_each_are_refused():
    with pytest.raises(ValueError, match="two or more"):
        findings_of([])
