"""The rounds of a sweep: one child and one record per case and round, within a budget."""

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

WORKER = child_command("dpbench.run.child.worker")
LEAST_S = 0.2
"""A child samples for at least this long, even if no time is left: its start took seconds already."""
_STARTUP_GUESS_S = 4.0

Launcher = Callable[[list[str], str, float], Exit]
"""The signature of `launch`: command, text for stdin, time limit in seconds."""
Key = tuple[str, int]
"""The id of a case and the number of a round."""


class Records(Protocol):
    """Where records go. `append` returns once the record is safe."""

    def append(self, record: Record) -> object: ...


@dataclass(frozen=True)
class Progress:
    """The progress of a sweep: `done` of `total` (round, case) pairs.

    `running` is the case that starts next, or None at the end. `last` is the newest record, or None if this call has
    none yet.
    """

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
    worker: Sequence[str] = WORKER,
    launch: Launcher = launch,
    progress: Callable[[Progress], object] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measure each (round, case) in the given order.

    A pair whose (case.id, round) is in `done` is left out. `worker` is the command of a child. Each child samples for
    `case_time_s`, or less if the sweep would otherwise take longer than `budget_s`. A failed case gives a record and
    does not stop the sweep.
    Raises KeyboardInterrupt, OSError if no child can be started, UnkillableError, and errors of `records.append`.
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
        end = launch(list(worker), job.model_dump_json(), job.budget_s + timeout_s)
        last = interpret(end, job)
        records.append(last)
        durations_s.append((case.id, end.duration_s))
        overheads_s.append((case.id, end.duration_s - sum(last.samples_s)))
    progress(Progress(len(order), len(order), 0.0, None, last))


def child_budget(remaining_s: float, jobs: int, startup_s: float, most_s: float) -> float:
    """Return the sampling seconds of each child, if `jobs` children share `remaining_s`.

    Pure. The result lies between `LEAST_S` and `most_s`. `startup_s` is the time that a child needs beside sampling:
    imports, the model, warm-up, the comparison with the oracle.
    """
    return min(max(remaining_s / jobs - startup_s, LEAST_S), most_s)


def forecast(left: Sequence[str], seen: Sequence[tuple[str, float]], guess: float) -> float:
    """Return the expected sum over the keys in `left`, from the (key, value) pairs in `seen`.

    Pure. A key that was seen counts with its median. A new key counts with the median of all pairs, or with `guess` if
    there are none.
    """
    overall = median(value for _, value in seen) if seen else guess
    medians = {key: median(value for k, value in seen if k == key) for key in {key for key, _ in seen}}
    return sum(medians.get(key, overall) for key in left)
