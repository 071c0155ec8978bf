"""Published steps as sums, and the constants and errors that the rows give with some tables left out. Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

from benchmarks.instruments.projection.published import as_published
from benchmarks.instruments.projection.row_file import Case, Series, Table
from benchmarks.instruments.projection.subset import first_devices
from dpbench.cases.variants import VariantId, VariantName
from dpbench.projection.machine import Machine
from dpbench.projection.machine_file import load_machine
from dpbench.projection.step_counts import HOME, AffineCounts, StepCounts
from dpbench.projection.step_sum import MIB, Fitted, Part, Setting, StepSum, compute_s, has_tensor_format, sum_step

CountsOf = Callable[[str, VariantId, int], AffineCounts]
"""Returns the counts of a workload, a variant and a number of lanes."""
SINGLE = VariantId(VariantName.SINGLE)
DDP = VariantName.DDP


@dataclass(frozen=True, eq=False)
class Row:
    """A published case with the counts of its step. Times are in seconds."""

    table: str
    series: Series
    case: Case
    machine: Machine
    math: str
    ahead: bool
    counts: StepCounts
    single: StepCounts
    why_not: str | None

    @property
    def variant(self) -> VariantId:
        return VariantId(VariantName(self.case.variant))

    @property
    def measured_s(self) -> float:
        return (self.case.measured_ms or 0.0) / 1e3

    @property
    def one_s(self) -> float | None:
        return None if self.series.one_device_ms is None else self.series.one_device_ms / 1e3

    @property
    def is_claimed(self) -> bool:
        return self.why_not is None

    def sum(self, fitted: Fitted, *, knows_one: bool = True) -> StepSum:
        """With the published step of one device or without."""
        setting = Setting(
            math=self.math,
            ahead=self.ahead,
            one_device_s=self.one_s if knows_one else None,
            bucket_bytes=self.series.bucket_mib * MIB,
            loader_items_per_s=self.case.loader_items_per_s,
            fitted=fitted,
        )
        return sum_step(self.variant, self.counts, self.single, self.machine, setting)

    def one_alone_s(self, fitted: Fitted) -> float:
        """One device, without its published step."""
        setting = Setting(math=self.math, fitted=fitted)
        return sum_step(SINGLE, self.single, self.single, self.machine, setting).step_s

    def naive_s(self) -> float:
        """One device's time, plus the bytes over the ring's bandwidth, or over the link from device 0 to 1."""
        machine, n = self.machine, self.machine.devices
        if self.case.variant == DDP and machine.ring is not None:
            sent = 2 * (n - 1) / n * self.single.model.parameter_bytes / machine.ring.bus_bandwidth.mid
        else:
            links = (machine.links[name].bandwidth.mid for name in machine.routes[0, 1])
            between = (value for name, value in self.counts.below("sent").items() if name.endswith("/bytes"))
            host = sum(v for name, v in self.counts.below("sent", "input").items() if name.endswith("/bytes"))
            sent = (sum(between) - host) / min(links)
        return (self.one_s or 0.0) + sent


@cache
def _whole(name: str) -> Machine:
    return load_machine(name)


def needed(table: Table) -> set[tuple[str, VariantId, int]]:
    """Workload, variant and number of lanes of all counts that a table needs."""
    keys = set[tuple[str, VariantId, int]]()
    for series in table.series:
        keys.add((series.workload, SINGLE, 1))
        for case in series.cases:
            if case.variant != DDP:
                lanes = case.devices or _whole(case.machine).devices
                keys.add((series.workload, VariantId(VariantName(case.variant)), lanes))
    return keys


def rows_of(tables: Mapping[str, Table], counts_of: CountsOf) -> list[Row]:
    return [
        _row(name, table, series, case, counts_of)
        for name, table in tables.items()
        for series in table.series
        for case in series.cases
    ]


def _row(name: str, table: Table, series: Series, case: Case, counts_of: CountsOf) -> Row:
    machine = _whole(case.machine)
    machine = machine if case.devices is None else first_devices(machine, case.devices)
    single = as_published(counts_of(series.workload, SINGLE, 1).at(series.items), table, series)
    counts = single
    if case.variant != DDP:
        step = counts_of(series.workload, VariantId(VariantName(case.variant)), machine.devices)
        counts = as_published(step.at(series.items * machine.devices), table, series)
    why_not = table.why_not_claimed(series, case)
    return Row(name, series, case, machine, table.math, table.ahead, counts, single, why_not)


def fit(rows: Sequence[Row], without: Collection[str]) -> Fitted:
    """The constants of the claimed rows of other tables, without errors. Each is a median over tables."""
    used = [row for row in rows if row.is_claimed and row.table not in without]
    speeds = {has: _median(_speeds(used, has_format=has), 1.0) for has in (True, False)}
    return Fitted(speed_float32=speeds[False], speed_tf32=speeds[True], beside=max(_median(_slowed(used), 0.0), 0.0))


def with_errors(rows: Sequence[Row], without: Collection[str] = ()) -> Fitted:
    """A table counts by its worst row, predicted without the table. The worst table sets an error."""
    fitted = fit(rows, without)
    step, ratio = 1.0, 1.0
    for table in {row.table for row in rows if row.is_claimed and row.table not in without}:
        other = fit(rows, {*without, table})
        for row in rows:
            if row.table == table and row.is_claimed and row.one_s is not None:
                ratio = max(ratio, excess(row.sum(other).step_s, row.measured_s))
                step = max(step, excess(row.sum(other, knows_one=False).step_s, row.measured_s))
                step = max(step, excess(row.one_alone_s(other), row.one_s))
    return Fitted(fitted.speed_float32, fitted.speed_tf32, fitted.beside, step, ratio)


def excess(predicted: float, published: float) -> float:
    """The factor between two times, at least 1."""
    return max(predicted / published, published / predicted)


def _median(by_table: Iterator[tuple[str, float]], default: float) -> float:
    """Over the tables, of their medians."""
    of_table = dict[str, list[float]]()
    for table, value in by_table:
        of_table.setdefault(table, []).append(value)
    return median([median(values) for values in of_table.values()]) if of_table else default


def _speeds(rows: Sequence[Row], *, has_format: bool) -> Iterator[tuple[str, float]]:
    """Published over computed times of one device, for each model once."""
    seen = set[tuple[str, str]]()
    for row in rows:
        key, from_table = (row.table, row.series.model), row.series.one_device_from
        if row.one_s is None or key in seen or from_table is not None:
            continue
        seen.add(key)
        if has_tensor_format(row.machine, row.math) is has_format:
            yield row.table, row.one_s / sum(compute_s(row.single, HOME, row.machine, row.math).values())


def _slowed(rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
    """By what share of the computation DDP's measured steps are longer than their sums."""
    for row in rows:
        if row.case.variant == DDP:
            step = row.sum(Fitted())
            yield row.table, (row.measured_s - step.device_s) / step.parts[Part.COMPUTE]
