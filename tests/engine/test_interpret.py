import signal
from dataclasses import replace

import pytest

from dpbench.cases.case import Case
from dpbench.engine.interpret import interpret, last_lines
from dpbench.engine.messages import Job
from dpbench.records.record import Outcome
from tests.fakes import ended, ok_record

CASE = Case(variant="tuned", workload="mlp/tiny", batch=8, devices=("cpu", "cpu"), threads=2)
JOB = Job(run="r1", case=CASE, round=2, sampling_s=1.0)


def test_a_complete_record_is_returned():
    record = ok_record(JOB)
    assert interpret(ended(0, record), JOB) == record


@pytest.mark.parametrize("end", [ended(-signal.SIGSEGV), ended(1), replace(ended(-9), timed_out_after_s=5.0)])
def test_a_complete_record_counts_even_if_the_child_failed_afterwards(end):
    record = ok_record(JOB)
    assert interpret(replace(end, record=record.model_dump_json(by_alias=True).encode()), JOB) == record


@pytest.mark.parametrize(
    "other",
    [
        JOB.model_copy(update={"round": 1}),
        JOB.model_copy(update={"run": "r2"}),
        JOB.model_copy(update={"case": CASE.model_copy(update={"batch": 16})}),
    ],
)
def test_a_record_of_another_case_is_a_crash(other):
    record = interpret(ended(0, ok_record(other)), JOB)
    assert (record.outcome, record.key, record.run) == (Outcome.CRASHED, (CASE.id, 2), "r1")
    assert record.reason.startswith(f"the child sent a record of another case: {other.case.id}, round {other.round}")


@pytest.mark.parametrize(
    ("end", "outcome", "reason"),
    [
        (replace(ended(-9), timed_out_after_s=2.5), Outcome.TIME_OUT, "not done after 2.5 s"),
        (replace(ended(-9), timed_out_after_s=2.5, oom_kills=1), Outcome.TIME_OUT, "not done after 2.5 s"),
        (ended(-signal.SIGSEGV), Outcome.CRASHED, "killed by SIGSEGV"),
        (replace(ended(-signal.SIGSEGV), oom_kills=1), Outcome.CRASHED, "killed by SIGSEGV"),
        (ended(-40), Outcome.CRASHED, "killed by signal 40"),
        (ended(-9), Outcome.CRASHED, "killed by SIGKILL; the kernel's out-of-memory killer does this"),
        (
            replace(ended(-9), oom_kills=1),
            Outcome.OUT_OF_MEMORY,
            "killed by SIGKILL while the kernel killed processes because memory ran out",
        ),
        (ended(3), Outcome.CRASHED, "ended with exit status 3"),
        (ended(0), Outcome.CRASHED, "ended without a record"),
    ],
)
def test_an_end_without_a_record(end, outcome, reason):
    record = interpret(end, JOB)
    assert (record.outcome, record.reason, record.samples_s) == (outcome, reason, ())
    assert (record.run, record.key, record.started_at) == ("r1", (CASE.id, 2), end.started_at)


@pytest.mark.parametrize(
    "response", [b"garbage", b"\xff\x00", b"[]", b"{}", ok_record(JOB).model_dump_json(by_alias=True).encode()[:-9]]
)
@pytest.mark.parametrize("returncode", [0, 1, -signal.SIGKILL])
def test_a_response_that_is_not_a_record_is_shown(response, returncode):
    record = interpret(ended(returncode, response), JOB)
    assert record.outcome is Outcome.CRASHED
    assert repr(response[:80].decode(errors="replace")) in record.reason
    assert "is not a record (" in record.reason


def test_the_last_lines_follow_the_reason():
    record = interpret(ended(1, tail=b"Traceback\n\nValueError: raised\n"), JOB)
    assert record.reason.splitlines() == ["ended with exit status 1", "Traceback", "ValueError: raised"]


def test_last_lines_are_few_short_and_printable():
    assert last_lines(b"".join(b"%d\n" % i for i in range(100))) == [str(i) for i in range(80, 100)]
    assert last_lines(b"\x1b[1;31mred\x1b[0m\x07\x00 \xff\n10%\r20%\n" + b"x" * 999) == [
        "red \ufffd",
        "10%",
        "20%",
        "x" * 300,
    ]


def test_a_lost_gpu_is_found_in_any_line_of_the_output():
    line = "what():  CUDA error: uncorrectable ECC error encountered"
    record = interpret(ended(-6, tail="\n".join(["first", line, *["later"] * 30]).encode()), JOB)
    assert record.outcome is Outcome.LOST_GPU
    assert record.reason.splitlines()[0] == f"killed by SIGABRT; {line}"
