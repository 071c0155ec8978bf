"""The rounds of a sweep: one process a round, and one child and one record for each case in it, within a budget."""

import math
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Protocol

from dpbench.cases.case import Case
from dpbench.processes.budget import LEAST_ROUNDS, RoundCost, cost_of_round, guessed_cost, plan_rounds, sentence
from dpbench.processes.interpret import interpret
from dpbench.processes.messages import Job
from dpbench.processes.rounds import JobLauncher
from dpbench.records.record import Record
from dpbench.stats.least_samples import MOST_S

Key = tuple[str, int]
"""The id of a case and the number of a round."""


class Records(Protocol):
    """Where records go. `append` returns once the record is safe."""

    def append(self, record: Record) -> object: ...


@dataclass(frozen=True)
class Progress:
    """The progress of a sweep: `done` of `total` (round, case) pairs, and `rounds_done` of `rounds`.

    A total falls if the budget is too short for all rounds; `note` then says so. `running` is the case that starts
    next, None at the end of a round. `last` is the record since the report before.
    """

    done: int
    total: int
    rounds_done: int
    rounds: int
    seconds_left: float
    running: Case | None = None
    last: Record | None = None
    note: str | None = None


def run(
    order: Sequence[tuple[int, Case]],
    *,
    run_id: str,
    records: Records,
    launch: JobLauncher,
    done: Container[Key] = (),
    budget_s: float = math.inf,
    case_time_s: float = 1.0,
    timeout_s: float = 300.0,
    progress: Callable[[Progress], object] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measure each (round, case) in the given order, which goes round by round.

    A pair whose (case.id, round) is in `done` is left out. Each child samples for `case_time_s`, or less if the sweep
    would otherwise take longer than `budget_s`. `budget.py` says how short, and when the last rounds are dropped.
    A failed case gives a record and does not stop the sweep.
    Raises KeyboardInterrupt, OSError if no child can be started, UnkillableError, and errors of `records.append`.
    """
    rounds = [list(pairs) for _, pairs in groupby(order, key=lambda pair: pair[0])]
    left = [[(number, case) for number, case in pairs if (case.id, number) not in done] for pairs in rounds]
    left = [pairs for pairs in left if pairs]
    begin_s, complete, expected = clock(), len(rounds) - len(left), len(rounds)
    count, last = len(order) - sum(map(len, left)), None
    cost = guessed_cost([case for _, case in left[0]]) if left else RoundCost(0.0, ())
    for index, pairs in enumerate(left):
        elapsed_s = clock() - begin_s
        least = max(LEAST_ROUNDS - complete, 0 if index else 1)
        plan = plan_rounds(cost, budget_s - elapsed_s, len(left) - index, least, case_time_s)
        if index and (index == 1 or complete + plan.rounds < expected):
            expected = complete + plan.rounds
            note = sentence(len(rounds), len(rounds[0]), budget_s, expected, elapsed_s + plan.total_s)
            if note is not None:
                progress(Progress(count, count, complete, expected, plan.total_s, note=note))
        if not plan.rounds:
            break
        planned = sum(map(len, left[index : index + plan.rounds]))
        report = partial(Progress, total=count + planned, rounds=complete + plan.rounds)
        taken: list[Record] = []
        round_begin_s = clock()
        for number, case in pairs:
            seconds_left = plan.total_s * (1 - len(taken) / planned)
            progress(report(count, rounds_done=complete, seconds_left=seconds_left, running=case, last=last))
            job = Job(run=run_id, case=case, round=number, sampling_s=plan.sampling_s)
            last = interpret(launch(job, max(job.sampling_s, MOST_S) + timeout_s), job)
            records.append(last)
            taken.append(last)
            count += 1
        complete += 1
        cost = cost_of_round(taken, clock() - round_begin_s)
        progress(report(count, rounds_done=complete, seconds_left=plan.total_s * (1 - 1 / plan.rounds), last=last))
        last = None
