"""A sweep from its plan to its records: what is measured already stays, the rest is measured now."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from dpbench.results.record import Record
from dpbench.results.store import Retry, Store, take_failed_out
from dpbench.run.ask import ask_machine
from dpbench.run.runner import Progress, run
from dpbench.sweep.machine_info import MachineInfo
from dpbench.sweep.names import is_factory
from dpbench.sweep.plan import Plan, round_order
from dpbench.sweep.spec import Spec


@dataclass(frozen=True)
class SweepRecords:
    """The plan's records, those of earlier calls among them, in the order of the plan; and what to warn of.

    All of them, unless it `is_interrupted`: then those that were finished.
    """

    records: tuple[Record, ...]
    warnings: tuple[str, ...]
    is_interrupted: bool = False


def machine_for(spec: Spec) -> MachineInfo:
    """This machine, asked whether it can load the user's own workloads of the spec too. Raises ProbeError."""
    return ask_machine(tuple(workload for workload in spec.workloads if is_factory(workload)), spec.data)


def run_sweep(
    spec: Spec, plan: Plan, store: Store, progress: Callable[[Progress], object], *, retry: Retry | None = None
) -> SweepRecords:
    """Measure what of the plan the store lacks, one child per case and round, each record safe before the next.

    With `retry` the plan's records that are not ok leave the store first.

    A KeyboardInterrupt ends the measuring and is told in what is returned. Raises StoreError where a record cannot be
    written.
    """
    with store:
        order = round_order(plan.cases, spec.rounds, spec.seed)
        keys = {(case.id, number) for number, case in order}
        if retry is Retry.FAILED:
            take_failed_out(store, lambda record: record.key in keys)
        contents = store.read()
        is_interrupted = False
        try:
            run(
                order,
                run_id=store.path.stem,
                records=store,
                done={record.key for record in contents.records},
                budget_s=spec.budget_s or inf,
                case_time_s=spec.case_time_s,
                timeout_s=spec.timeout_s,
                progress=progress,
            )
        except KeyboardInterrupt:
            is_interrupted = True
        records = store.read().records
    return SweepRecords(tuple(record for record in records if record.key in keys), contents.warnings, is_interrupted)
