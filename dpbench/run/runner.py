"""The rounds of a sweep: one child per case and round, one record appended after each."""
# MERGED-DOC run.budget: """How much sampling time each child gets, and how long the rest will take. Pure."""

import math
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from dpbench.results.record import Record
from dpbench.run.interpret import interpret
from dpbench.run.launch import Exit, launch
from dpbench.run.messages import Job
from dpbench.run.start import child_command
from dpbench.sweep.case import Case

LEAST_S = 0.2
"""A child always samples for so long, even when the time is up: starting it cost seconds already."""


def child_budget(remaining_s: float, jobs: int, startup_s: float, most_s: float) -> float:
    """Sampling seconds for each of `jobs` children so that all end within `remaining_s`, and never above `most_s`.

    `startup_s` is what one child takes beside sampling: imports, the model, warm-up, the gradient check.
    """
    return min(max(remaining_s / jobs - startup_s, LEAST_S), most_s)


def forecast(left: Sequence[str], seen: Sequence[tuple[str, float]], guess: float) -> float:
    """The sum expected for the keys `left`, where `seen` are (key, value) pairs of those that are done.

    A key that was seen is expected to repeat its median, a new one the median of all; without any, `guess`.
    """
    overall = median(value for _, value in seen) if seen else guess
    medians = {key: median(value for k, value in seen if k == key) for key in {key for key, _ in seen}}
    return sum(medians.get(key, overall) for key in left)


WORKER = child_command("dpbench.run.child.worker")
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
