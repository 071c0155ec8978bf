"""Run a gate: from a request to a judgement and a line in the history."""

from datetime import UTC, datetime

from dpbench.engine.launch import Launcher, launch
from dpbench.errors import GateError, ReportedError, WrongInputError
from dpbench.gate.benchmarks import choose_benchmarks
from dpbench.gate.count_sides import count_sides
from dpbench.gate.history import append_gate
from dpbench.gate.judgement import Judgement, Revision
from dpbench.gate.prepare import WORKTREE, GateRequest, Progress, prepare
from dpbench.gate.settings import Settings
from dpbench.gate.sides import open_sides
from dpbench.gate.time_sides import time_sides
from dpbench.gate.verdict import judge_all
from dpbench.judge.decision import Verdict
from dpbench.records.store import StoreError


class UnkeptError(GateError):
    """The judgement stands, and its line of history could not be written."""

    def __init__(self, reason: str, judgement: Judgement) -> None:
        super().__init__(reason)
        self.judgement = judgement


def run_gate(request: GateRequest, *, launch: Launcher = launch, progress: Progress = lambda *_: None) -> Judgement:
    """Append a line to the history if times were measured.

    Raise UnkeptError if the line cannot be written. Raise WrongInputError, or GateError if the gate cannot judge; then
    no temporary file and no line of history is left.
    """
    try:
        prepared = prepare(request, launch, progress)
        with open_sides(prepared, launch, progress) as sides:
            benchmarks = choose_benchmarks(prepared, sides, progress)
            counters = count_sides(prepared, benchmarks, sides, progress)
            times = time_sides(prepared, benchmarks, sides, progress)
        judgement = judge_all(prepared, benchmarks, counters, times)
    except WrongInputError:
        raise
    except ReportedError as error:
        raise GateError(" ".join(str(error).split())) from error
    try:
        append_gate(prepared.results, judgement, times.cases, times.twin_alarmed)
    except StoreError as error:
        raise UnkeptError(str(error), judgement) from error
    return judgement


def broken_judgement(request: GateRequest, why: str) -> Judgement:
    """The judgement on a gate that raised GateError."""
    return Judgement(
        verdict=Verdict.BROKEN,
        why=why,
        base=Revision(asked=request.base, commit=None),
        head=Revision(asked=request.head or WORKTREE, commit=None),
        tiers=request.tiers,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        duration_s=0.0,
        alarm_rate=Settings().alarm_rate,
    )
