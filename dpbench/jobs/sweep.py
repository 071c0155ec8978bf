"""A sweep, from its plan to the records in its store: round by round, within a budget."""

import math
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Protocol

from dpbench.cases.case import Case
from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.names import is_factory
from dpbench.cases.plan import Plan, RoundCost, guessed_cost, round_order
from dpbench.cases.spec import Spec
from dpbench.engine.interpret import interpret
from dpbench.engine.messages import Job
from dpbench.engine.other_load import LoadMeter, OtherLoad
from dpbench.jobs.budget import COMPILING_S, Budget, RoundPlan, cost_of_round, pace_s
from dpbench.jobs.probe import ask_machine
from dpbench.jobs.round import JobLauncher, JobRunner, RoundProcesses
from dpbench.judge.least_samples import MOST_S
from dpbench.records.record import Record
from dpbench.records.store import Retry, Store, StoreError, read_rows, take_failed_out

Key = tuple[str, int]
Check = Callable[[Sequence[Record]], object]


class Records(Protocol):
    """`append` returns once the record is safe."""

    def append(self, record: Record) -> object: ...


@dataclass(frozen=True)
class Progress:
    """`done` and `total` are (round, case) pairs.

    Totals fall if the budget is too short for all rounds; `note` says so. `running` is None at the end of a round.
    `last` is the record since the last report.
    """

    done: int
    total: int
    rounds_done: int
    rounds: int
    seconds_left: float
    running: Case | None = None
    last: Record | None = None
    note: str | None = None


@dataclass(frozen=True)
class SweepRecords:
    """The plan's records in the order of the store, those of earlier calls too; without a new one there is no load."""

    records: tuple[Record, ...]
    warnings: tuple[str, ...]
    is_interrupted: bool = False
    other_load: OtherLoad | None = None


def machine_for(spec: Spec) -> MachineInfo:
    """Raises ChildError."""
    factories = tuple(workload for workload in spec.workloads if is_factory(workload))
    return ask_machine(factories, spec.data, timeout_s=spec.timeout_s)


@dataclass(frozen=True)
class _Kept:
    store: Store
    stored: list[Record]
    check: Check | None

    def append(self, record: Record) -> None:
        if self.check is not None:
            self.check([*self.stored[:1], record])
        self.store.append(record)
        self.stored.append(record)


def run_sweep(
    spec: Spec,
    plan: Plan,
    store: Store,
    progress: Callable[[Progress], object],
    *,
    retry: Retry | None = None,
    runner: JobRunner | None = None,
    check: Check | None = None,
    settles: bool = False,
) -> SweepRecords:
    """Measure what the plan needs and the store lacks; each record is stored before the next child starts.

    `check` gets a record of the store and the new one before that is stored; an error that it raises ends the sweep.
    `retry` first removes the plan's failed records. `settles` is as in `run`. A KeyboardInterrupt ends the sweep.
    Raises StoreError.
    """
    runner, meter = runner or RoundProcesses(), LoadMeter()
    with store:
        order = round_order(plan.cases, spec.rounds, spec.seed)
        keys = {(case.id, number) for number, case in order}
        if retry is Retry.FAILED:
            take_failed_out(store, lambda record: record.key in keys)
        contents = read_rows(store.path, Record)
        records, is_interrupted = _Kept(store, list(contents.rows), check), False
        is_complete = keys <= {record.key for record in records.stored}
        try:
            run(
                order,
                run_id=store.path.stem,
                records=records,
                done={record.key for record in records.stored},
                budget_s=spec.budget_s or math.inf,
                case_time_s=spec.case_time_s,
                timeout_s=spec.timeout_s,
                launch=runner.launch,
                progress=progress,
                settles=settles,
            )
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            runner.end_round()
    of_plan = tuple(record for record in records.stored if record.key in keys)
    warnings = (*contents.warnings, *_lost_warning(store, records.stored))
    return SweepRecords(of_plan, warnings, is_interrupted, None if is_complete else meter.read())


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
    settles: bool = False,
) -> None:
    """`order` goes round by round. Children sample for `case_time_s`, or less to keep to `budget_s`.

    If it `settles`, no user asked for these rounds and this budget: their number is fixed after the first one.

    Raises KeyboardInterrupt, OSError if no child can be started, UnkillableError, and errors of `records.append`.
    """
    rounds = [list(pairs) for _, pairs in groupby(order, key=lambda pair: pair[0])]
    left = [[(number, case) for number, case in pairs if (case.id, number) not in done] for pairs in rounds]
    left = [pairs for pairs in left if pairs]
    begin_s, earlier, count = clock(), len(rounds) - len(left), len(order) - sum(map(len, left))
    budget = Budget(len(rounds), len(left), earlier, budget_s, case_time_s, settles)

    def plan_from(index: int, cost: RoundCost) -> RoundPlan:
        """Report a budget that is too short, and again if the plan changes much."""
        plan, note = budget.plan(index, cost, clock() - begin_s, len(rounds[0]))
        if note is not None:
            whole_rounds = earlier + index + plan.rounds
            progress(Progress(count, count, earlier + index, whole_rounds, plan.total_s, note=note))
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
            case_s = plan.total_s / planned
            seconds_left = (planned - len(taken)) * pace_s(case_s, len(taken), clock() - round_begin_s)
            progress(report(count, rounds_done=earlier + index, seconds_left=seconds_left, running=case, last=last))
            job = Job(run=run_id, case=case, round=number, sampling_s=plan.sampling_s)
            compiling_s = COMPILING_S if case.variant.compile_mode else 0.0
            last = interpret(launch(job, max(job.sampling_s, MOST_S) + timeout_s + compiling_s), job)
            records.append(last)
            taken.append(last)
            count += 1
        plan = plan_from(index + 1, cost_of_round(taken, clock() - round_begin_s))
        done_rounds = earlier + index + 1
        all_rounds = done_rounds + plan.rounds
        progress(report(count, rounds_done=done_rounds, rounds=all_rounds, seconds_left=plan.total_s, last=last))


def _lost_warning(store: Store, written: Sequence[Record]) -> list[str]:
    """Somebody may have replaced or cut the file."""
    try:
        held = {record.key for record in read_rows(store.path, Record, leaves_out_bad_lines=True).rows}
    except StoreError:
        held = set()
    lost = [record for record in written if record.key not in held]
    if not lost:
        return []
    count = f"{len(lost)} of {len(written)} records, such as {lost[0].case.id}, round {lost[0].round + 1}"
    return [f"{store.path}: was changed while it was written, and lacks {count}"]
