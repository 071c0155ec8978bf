"""A sweep, from its plan to the records in its store. Cases that the store holds already are not measured again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.names import is_factory
from dpbench.cases.plan import Plan, round_order
from dpbench.cases.spec import Spec
from dpbench.processes.ask import ask_machine
from dpbench.processes.other_load import LoadMeter, OtherLoad
from dpbench.processes.rounds import JobRunner, RoundProcesses
from dpbench.processes.runner import Progress, run
from dpbench.records.record import Record
from dpbench.records.store import Retry, Store, StoreError, take_failed_out


@dataclass(frozen=True)
class SweepRecords:
    """The plan's records in the order of the store, its warnings, and the load of other processes meanwhile.

    Records of earlier calls are among them. If `is_interrupted`, some of the plan's records are missing.
    """

    records: tuple[Record, ...]
    warnings: tuple[str, ...]
    is_interrupted: bool = False
    other_load: OtherLoad | None = None


def machine_for(spec: Spec) -> MachineInfo:
    """Raises ProbeError."""
    factories = tuple(workload for workload in spec.workloads if is_factory(workload))
    return ask_machine(factories, spec.data, timeout_s=spec.timeout_s)


@dataclass(frozen=True)
class _Kept:
    store: Store
    found: list[Record]

    def append(self, record: Record) -> None:
        self.store.append(record)
        self.found.append(record)


def run_sweep(
    spec: Spec,
    plan: Plan,
    store: Store,
    progress: Callable[[Progress], object],
    *,
    retry: Retry | None = None,
    runner: JobRunner | None = None,
) -> SweepRecords:
    """Measure what the plan needs and the store lacks; each record is stored before the next child starts.

    `retry` first removes the plan's failed records from the store. A KeyboardInterrupt ends the sweep, and the result
    says so. Raises StoreError.
    """
    runner, meter = runner or RoundProcesses(), LoadMeter()
    with store:
        order = round_order(plan.cases, spec.rounds, spec.seed)
        keys = {(case.id, number) for number, case in order}
        if retry is Retry.FAILED:
            take_failed_out(store, lambda record: record.key in keys)
        contents = store.read()
        records, is_interrupted = _Kept(store, list(contents.records)), False
        try:
            run(
                order,
                run_id=store.path.stem,
                records=records,
                done={record.key for record in records.found},
                budget_s=spec.budget_s or inf,
                case_time_s=spec.case_time_s,
                timeout_s=spec.timeout_s,
                launch=runner.launch,
                progress=progress,
            )
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            runner.end_round()
    found = tuple(record for record in records.found if record.key in keys)
    warnings = (*contents.warnings, *_lost_warning(store, records.found))
    return SweepRecords(found, warnings, is_interrupted, meter.read())


def _lost_warning(store: Store, written: Sequence[Record]) -> list[str]:
    """A line if the file no longer holds what was written, because somebody replaced or cut it."""
    try:
        held = {record.key for record in store.read(leave_out_bad_lines=True).records}
    except StoreError:
        held = set()
    lost = [record for record in written if record.key not in held]
    if not lost:
        return []
    count = f"{len(lost)} of {len(written)} records, such as {lost[0].case.id}, round {lost[0].round + 1}"
    return [f"{store.path}: was changed while it was written, and lacks {count}"]
