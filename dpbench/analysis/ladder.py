"""The ladder: one device, several devices, one process for each, several machines. All share one one-device case."""

from collections.abc import Sequence
from dataclasses import dataclass

from dpbench.analysis.compare_variants import ComparedCase, Comparison, Comparisons
from dpbench.analysis.summary import Summary
from dpbench.cases.case import Case, on_one_device
from dpbench.cases.variants import VariantName


@dataclass(frozen=True)
class Rung:
    """`devices` are different ones, over all machines. `ideal_items_per_s` is `devices` times the throughput of one
    device with the whole batch. None is what does not apply, or was not measured.
    """

    summary: Summary
    devices: int
    ideal_items_per_s: float | None
    percent_of_limit: float | None

    @property
    def efficiency_percent(self) -> float | None:
        items = self.summary.items_per_s
        return None if items is None or self.ideal_items_per_s is None else 100 * items / self.ideal_items_per_s

    @property
    def rank_skew_s(self) -> float | None:
        """From the fastest to the slowest rank; None without ranks."""
        skew = self.summary.phases.skew_s
        return None if skew is None else skew.value

    @property
    def machine_skew_s(self) -> float | None:
        """None with one machine."""
        skew = self.summary.phases.machine_skew_s
        return None if skew is None else skew.value


@dataclass(frozen=True)
class Ladder:
    """Rungs from few machines and devices to many. `one_device` is the fastest `single` with the whole batch."""

    one_device: Case
    rungs: tuple[Rung, ...]


def ladders(comparisons: Comparisons) -> tuple[Ladder, ...]:
    """Each has a measured case. One process with all devices makes none: its comparison has it."""
    of_one_device: dict[Case, list[Comparison]] = {}
    for comparison in comparisons.comparisons:
        of_one_device.setdefault(on_one_device(comparison.setting), []).append(comparison)
    made = [_ladder(one_device, group) for one_device, group in of_one_device.items() if _is_ladder(group)]
    return tuple(ladder for ladder in made if any(rung.summary.step_times_s for rung in ladder.rungs))


def _is_ladder(comparisons: Sequence[Comparison]) -> bool:
    return len(comparisons) > 1 or any(row.summary.case.variant.is_per_rank for row in comparisons[0].rows)


def _ladder(one_device: Case, comparisons: Sequence[Comparison]) -> Ladder:
    rows = {row.summary.case: row for comparison in comparisons for row in comparison.rows}
    alone = [row.summary for case, row in rows.items() if case == one_device.of(case.variant.single)]
    single = max(alone, key=lambda summary: summary.items_per_s or 0.0, default=None)
    one_device = one_device if single is None else single.case
    items_per_s = None if single is None else single.items_per_s
    return Ladder(one_device, tuple(sorted((_rung(row, items_per_s) for row in rows.values()), key=_place)))


def _rung(row: ComparedCase, single_items_per_s: float | None) -> Rung:
    case = row.summary.case
    devices = len(set(case.lanes_of_a_machine)) * case.machines
    ideal = None if single_items_per_s is None else devices * single_items_per_s
    # One device is a row of several comparisons, each with another limit.
    percent_of_limit = None if case.variant.name is VariantName.SINGLE else row.percent_of_limit
    return Rung(row.summary, devices, ideal, percent_of_limit)


def _place(rung: Rung) -> tuple[object, ...]:
    case = rung.summary.case
    return case.machines, rung.devices, len(case.devices), case.devices, case.variant.order
