"""The rounds of a sweep: one child per case and round, one record appended after each."""

import math
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Protocol

from dpbench.results.record import Record
from dpbench.run.budget import child_budget, forecast
from dpbench.run.interpret import interpret
from dpbench.run.job import Job
from dpbench.run.launch import Exit, launch
from dpbench.run.start import child_command
from dpbench.sweep.case import Case

WORKER = child_command("dpbench.run.worker")
_STARTUP_GUESS_S = 4.0

Launcher = Callable[[list[str], str, float], Exit]
Key = tuple[str, int]


class Records(Protocol):
    """Where records go; `append` returns once the record is safe."""

    def append(self, record: Record) -> object: ...


@dataclass(frozen=True)
class Progress:
    """`running` is the job about to start, None at the end; `last` is the newest record of this call."""

    done: int
    total: int
    seconds_left: float
    running: Case | None = None
    last: Record | None = None


def run(
    order: Sequence[tuple[int, Case]],
    *,
    run_id: str,
    records: Records,
    done: Container[Key] = (),
    budget_s: float = math.inf,
    case_time_s: float = 1.0,
    timeout_s: float = 300.0,
    launch: Launcher = launch,
    progress: Callable[[Progress], object] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measure each (round, case) in the given order, leaving out those whose (case.id, round) is `done`.

    Each child samples for `case_time_s`, or less where all would not be done `budget_s` seconds from now. A
    failing case is a record like any other; only what stops the sweep is raised: KeyboardInterrupt, OSError when
    no child can be started, UnkillableError, and whatever `records.append` raises.
    """
    todo = [(round_, case) for round_, case in order if (case.id, round_) not in done]
    deadline_s = clock() + budget_s
    durations_s: list[tuple[str, float]] = []
    overheads_s: list[tuple[str, float]] = []
    last = None
    for index, (round_, case) in enumerate(todo):
        left = [case.id for _, case in todo[index:]]
        startup_s = forecast(left, overheads_s, _STARTUP_GUESS_S) / len(left)
        job = Job(
            run=run_id,
            case=case,
            round=round_,
            budget_s=child_budget(deadline_s - clock(), len(left), startup_s, case_time_s),
        )
        seconds_left = forecast(left, durations_s, _STARTUP_GUESS_S + job.budget_s)
        progress(Progress(len(order) - len(left), len(order), seconds_left, case, last))
        end = launch(WORKER, job.model_dump_json(), job.budget_s + timeout_s)
        last = interpret(end, job)
        records.append(last)
        durations_s.append((case.id, end.duration_s))
        overheads_s.append((case.id, end.duration_s - sum(last.samples_s)))
    progress(Progress(len(order), len(order), 0.0, None, last))
