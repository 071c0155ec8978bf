"""The rounds of a sweep, within a budget."""

import math
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Protocol

from dpbench.cases.case import Case
from dpbench.processes.budget import (
    LEAST_ROUNDS,
    RoundCost,
    RoundPlan,
    are_too_many,
    cost_of_round,
    differs,
    guessed_cost,
    pace_s,
    plan_rounds,
    sentence,
)
from dpbench.processes.interpret import interpret
from dpbench.processes.messages import Job
from dpbench.processes.rounds import JobLauncher
from dpbench.records.record import Record
from dpbench.stats.least_samples import MOST_S

Key = tuple[str, int]


class Records(Protocol):
    """`append` returns once the record is safe."""

    def append(self, record: Record) -> object: ...


@dataclass(frozen=True)
class Progress:
    """`done` of `total` (round, case) pairs, and `rounds_done` of `rounds`.

    Totals fall if the budget is too short for all rounds; `note` says so. `running` is the next case, None at the end
    of a round. `last` is the record since the last report.
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
    """The order goes round by round; pairs (case.id, round) in `done` are left out.

    Children sample for `case_time_s`, or less to keep to `budget_s` (`budget.py`). A failed case gives a record and
    does not stop the sweep. Raises KeyboardInterrupt, OSError if no child can be started, UnkillableError, and errors
    of `records.append`.
    """
    rounds = [list(pairs) for _, pairs in groupby(order, key=lambda pair: pair[0])]
    left = [[(number, case) for number, case in pairs if (case.id, number) not in done] for pairs in rounds]
    left = [pairs for pairs in left if pairs]
    begin_s, earlier, count = clock(), len(rounds) - len(left), len(order) - sum(map(len, left))
    said: RoundPlan | None = None

    def plan_from(index: int, cost: RoundCost) -> RoundPlan:
        """Plan from round `index`; report a budget that is too short, and again if the plan changes much."""
        nonlocal said
        elapsed_s, complete = clock() - begin_s, earlier + index
        least = max(LEAST_ROUNDS - complete, 0 if index else 1)
        plan = plan_rounds(cost, budget_s - elapsed_s, len(left) - index, least, case_time_s)
        whole = RoundPlan(complete + plan.rounds, plan.sampling_s, elapsed_s + plan.total_s)
        note = sentence(len(rounds), len(rounds[0]), budget_s, whole.rounds, whole.total_s)
        is_told = index < len(left) if index else are_too_many(len(left), cost, budget_s)
        if is_told and note is not None and differs(whole, said):
            said = whole
            progress(Progress(count, count, complete, whole.rounds, plan.total_s, note=note))
        return plan

    plan = plan_from(0, guessed_cost([case for _, case in left[0]])) if left else None
    for index, pairs in enumerate(left):
        if plan is None or not plan.rounds:
            break
        planned = sum(map(len, left[index : index + plan.rounds]))
        report = partial(Progress, total=count + planned, rounds=earlier + index + plan.rounds)
        taken: list[Record] = []
        last, round_begin_s = None, clock()
        for number, case in pairs:
            each_s = plan.total_s / planned
            seconds_left = (planned - len(taken)) * pace_s(each_s, len(taken), clock() - round_begin_s)
            progress(report(count, rounds_done=earlier + index, seconds_left=seconds_left, running=case, last=last))
            job = Job(run=run_id, case=case, round=number, sampling_s=plan.sampling_s)
            last = interpret(launch(job, max(job.sampling_s, MOST_S) + timeout_s), job)
            records.append(last)
            taken.append(last)
            count += 1
        plan = plan_from(index + 1, cost_of_round(taken, clock() - round_begin_s))
        progress(report(count, rounds_done=earlier + index + 1, seconds_left=plan.total_s, last=last))
