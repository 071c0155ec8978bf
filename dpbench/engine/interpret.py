"""What the end of a child means: its answer, the one Record of its job, or why there is none."""

import re
import signal
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from dpbench.engine.launch import Exit
from dpbench.engine.messages import Job
from dpbench.errors import ReportedError
from dpbench.records.record import Outcome, Record, line_on_lost_gpu

_LAST_LINES = 20
_LINE_CHARACTERS = 300
_SHOWN_BYTES = 80
_TERMINAL_COMMAND = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")  # ECMA-48, 5.4


Answer = TypeVar("Answer", bound=BaseModel)


class ChildError(ReportedError):
    pass


def answer_in(record: bytes, model: type[Answer]) -> Answer | None:
    """None if the child sent nothing, or something else."""
    try:
        return model.model_validate_json(record)
    except ValidationError:
        return None


def interpret(end: Exit, job: Job) -> Record:
    """A complete record counts, even if the child crashed after sending it.

    The first line of a failure's `reason` says what happened, and the child's last lines follow.
    """
    try:
        record = Record.model_validate_json(end.record)
    except ValidationError as error:
        problem = f"{_shown(end.record)} is not a record ({error.errors()[0]['msg']})" if end.record else ""
        outcome, reason = _failure(end, problem)
    else:
        if (record.run, *record.key) == (job.run, job.case.id, job.round):
            return record
        outcome, reason = (
            Outcome.CRASHED,
            f"the child sent a record of another case: {record.case.id}, round {record.round}",
        )
    lines = [reason, *last_lines(end.tail)]
    return Record(
        run=job.run, case=job.case, round=job.round, started_at=end.started_at, outcome=outcome, reason="\n".join(lines)
    )


def _failure(end: Exit, problem: str) -> tuple[Outcome, str]:
    outcome, reason = Outcome.CRASHED, ending(end)
    if end.timed_out_after_s is not None:
        outcome = Outcome.TIME_OUT
    elif _ran_out_of_memory(end):
        outcome = Outcome.OUT_OF_MEMORY
    elif end.returncode == 0:
        reason = "ended without a record"
    elif line := next(filter(line_on_lost_gpu, printable_lines(end.tail)), None):
        outcome, reason = Outcome.LOST_GPU, f"{reason}; {line}"
    return outcome, f"{reason}; {problem}" if problem else reason


def _ran_out_of_memory(end: Exit) -> bool:
    return end.returncode == -signal.SIGKILL and end.oom_kills > 0


def ending(end: Exit) -> str:
    if end.timed_out_after_s is not None:
        return f"not done after {end.timed_out_after_s:g} s"
    if _ran_out_of_memory(end):
        return "killed by SIGKILL while the kernel killed processes because memory ran out"
    if end.returncode == -signal.SIGKILL:
        return "killed by SIGKILL; the kernel's out-of-memory killer does this"
    if end.returncode < 0:
        return f"killed by {_signal_name(-end.returncode)}"
    return f"ended with exit status {end.returncode}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def last_lines(tail: bytes) -> list[str]:
    """The last 20 lines at most."""
    return printable_lines(tail)[-_LAST_LINES:]


def printable_lines(tail: bytes) -> list[str]:
    """The lines that are not empty, without terminal commands, of at most 300 characters."""
    text = _TERMINAL_COMMAND.sub("", tail.decode(errors="replace")).expandtabs()
    lines = ("".join(c for c in line if c.isprintable()).rstrip() for line in text.splitlines())
    return [line[:_LINE_CHARACTERS] for line in lines if line]


def _shown(record: bytes) -> str:
    more = f"... ({len(record)} bytes)" if len(record) > _SHOWN_BYTES else ""
    return repr(record[:_SHOWN_BYTES].decode(errors="replace")) + more
