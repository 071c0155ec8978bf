"""Records by machine: those that may be compared with each other, and their comparison. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpbench.analysis.answer import place
from dpbench.analysis.compare import Comparison, Comparisons, compare, differences
from dpbench.analysis.summary import Summary
from dpbench.cases.case import Case
from dpbench.cases.plan import Skip
from dpbench.cases.variants import VariantId
from dpbench.records.counts import CountRecord
from dpbench.records.record import Environment, Record
from dpbench.report.page.parts import Columns, DataRow, Panel

MOST_SETTINGS = 40
"""Charts show as many settings of a machine; the raw table has all."""


@dataclass(frozen=True)
class MachineResults:
    """Records of one environment and their comparison. `is_throttled` is set if only some of them were throttled."""

    name: str
    environment: Environment | None
    records: Sequence[Record]
    compared: Comparisons
    counts: Sequence[CountRecord] = ()

    @property
    def is_throttled(self) -> bool:
        return "throttled" in self.compared.differences

    @cached_property
    def shown(self) -> tuple[Comparison, ...]:
        """The comparisons that charts show: the first by `main`'s order, sorted as in tables."""
        every = self.compared.comparisons
        ranked = sorted(range(len(every)), key=lambda i: _weight(every[i]), reverse=True)
        return tuple(every[i] for i in sorted(ranked[:MOST_SETTINGS]))

    @cached_property
    def labels(self) -> dict[str, str]:
        """The names of the shown settings by `Case.setting`. They name what distinguishes the settings."""
        cases = [each.setting for each in self.shown]
        return {case.setting: _label(case, cases) for case in cases}

    @cached_property
    def main(self) -> Comparison | None:
        """The comparison that is shown first: most variants with times, then most devices, then the largest batch."""
        return max(self.shown, key=_weight, default=None)

    @property
    def first(self) -> str:
        """The key of `main`."""
        return "" if self.main is None else self.main.setting.setting

    @cached_property
    def summaries(self) -> list[Summary]:
        """Each case once: `single` is a row of several comparisons."""
        rows = (row.summary for comparison in self.compared.comparisons for row in comparison.rows)
        return list({each.case: each for each in (*rows, *self.compared.single_device_baselines)}.values())

    @cached_property
    def settings_by_case(self) -> dict[Case, list[str]]:
        """The shown settings that have a row of the case, by `Case.setting`. `single` is a row of several."""
        found: dict[Case, list[str]] = {}
        for comparison in self.shown:
            for row in comparison.rows:
                found.setdefault(row.summary.case, []).append(comparison.setting.setting)
        return found

    @cached_property
    def variants(self) -> list[VariantId]:
        """All variants that have times, in the order of tables."""
        timed = {summary.case.variant for summary in self.summaries if summary.step_times_s}
        return sorted(timed, key=lambda each: each.order)

    def panel(
        self,
        name: str,
        title: str,
        text: str | Callable[[Sequence[DataRow]], str],
        *,
        columns: Columns,
        rows: Mapping[str, Sequence[DataRow]] | Callable[[Comparison], Iterable[DataRow]],
        spec: Mapping[str, object],
    ) -> Panel | None:
        """Return a panel with rows for each shown setting that has any; None without any.

        `text` may be made of all rows, and `rows` of a setting's comparison.
        """
        if callable(rows):
            rows = {each.setting.setting: list(rows(each)) for each in self.shown}
        rows = {key: own for key, own in rows.items() if own}
        if not rows:
            return None
        text = text if isinstance(text, str) else text([row for own in rows.values() for row in own])
        return Panel(name, title, text, columns, rows, spec, "setting", self.first, self.labels)


def _weight(comparison: Comparison) -> tuple[int, int, int]:
    timed = sum(1 for row in comparison.rows if row.summary.step_times_s)
    return timed, len(comparison.setting.devices), comparison.setting.batch


def by_machine(
    records: Iterable[Record],
    skipped: Iterable[Skip] = (),
    counts: Sequence[CountRecord] = (),
    reference: VariantId | None = None,
) -> list[MachineResults]:
    """Return the machines in order of appearance.

    A record without an environment, because it failed early, goes to the machine of its run. Skipped cases and counts
    go to the first machine.
    """
    groups = _groups(list(records))
    apart = list(differences([environment for environment in groups if environment is not None]))
    skipped = list(skipped)
    if not groups and skipped:
        groups[None] = []
    found = []
    for number, (environment, own) in enumerate(groups.items()):
        compared = compare(own, () if number else skipped, reference=reference, allow_different=True)
        name = _name(environment, apart)
        found.append(MachineResults(name, environment, own, compared, () if number else counts))
    return found


def machine_names(environments: Sequence[Environment]) -> list[str]:
    """Return the name of each machine: its host and devices. Equal names are told apart by what differs."""
    same: dict[str, list[Environment]] = {}
    for environment in environments:
        same.setdefault(_name(environment, ()), []).append(environment)
    return [_name(each, list(differences(same[_name(each, ())]))) for each in environments]


def _groups(records: Sequence[Record]) -> dict[Environment | None, list[Record]]:
    of_run = {record.run: record.environment for record in reversed(records) if record.environment is not None}
    groups: dict[Environment | None, list[Record]] = {}
    for record in records:
        groups.setdefault(record.environment or of_run.get(record.run), []).append(record)
    return groups


def _name(environment: Environment | None, apart: Sequence[str]) -> str:
    """Return the machine's name; `apart` are the fields that distinguish it from the others."""
    if environment is None:
        return "unknown machine"
    devices = sorted(set(environment.gpus)) or [environment.cpu_model]
    known = ("hostname", "gpus", "cpu_model")
    values = {field: getattr(environment, field) for field in apart if field not in known}
    more = [f"{field} {_short(value)}" for field, value in values.items() if value is not None]
    return ", ".join([f"{environment.hostname}: {', '.join(devices)}", *more])


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 12 else f"{text[:12]}…"


def _label(case: Case, cases: Sequence[Case]) -> str:
    axes = ("mode", "dtype", "data", "threads", "seed", "steps_per_sample")
    differing = [axis for axis in axes if len({getattr(each, axis) for each in cases}) > 1]
    return ", ".join([place(case), *(f"{axis.replace('_', ' ')} {getattr(case, axis)}" for axis in differing)])
