"""Records by machine: those that may be compared with each other, and their comparison. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpbench.analysis.answer import circumstances, place
from dpbench.analysis.compare_variants import Comparison, Comparisons, compare
from dpbench.analysis.summary import Summary
from dpbench.cases.case import Case
from dpbench.cases.plan import Skip
from dpbench.cases.variants import VariantId
from dpbench.records.count_record import CountRecord
from dpbench.records.record import Environment, Record, differences
from dpbench.report.page.drawing import Spec, coloured, drawn, row_step, variant_colours
from dpbench.report.page.parts import Columns, DataRow, Panel
from dpbench.text.outside import shortened

MOST_SETTINGS = 40
"""Of a machine, in charts; the raw table has all."""
_NAMED = ("hostname", "gpus", "cpu_model")
"""Fields that a machine's name has in any case."""


@dataclass(frozen=True)
class MachineResults:
    """Records of one environment and their comparison."""

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
        """By `Case.setting`: what distinguishes the shown settings."""
        cases = [comparison.setting for comparison in self.shown]
        more = apart({case.setting: circumstances(case) for case in cases}) if len(cases) > 1 else {}
        return {case.setting: ", ".join(filter(None, (place(case), more.get(case.setting)))) for case in cases}

    @cached_property
    def main(self) -> Comparison | None:
        """The comparison that is shown first: most variants with times, then most devices, then the largest batch."""
        return max(self.shown, key=_weight, default=None)

    @property
    def first(self) -> str:
        return "" if self.main is None else self.main.setting.setting

    @cached_property
    def summaries(self) -> list[Summary]:
        return [row.summary for row in self.compared.cases]

    @cached_property
    def settings_by_case(self) -> dict[Case, list[str]]:
        """The shown settings that have a row of the case. `single` is a row of several."""
        settings: dict[Case, list[str]] = {}
        for comparison in self.shown:
            for row in comparison.rows:
                settings.setdefault(row.summary.case, []).append(comparison.setting.setting)
        return settings

    @cached_property
    def variants(self) -> list[VariantId]:
        """All that have times, in the order of tables."""
        timed = {summary.case.variant for summary in self.summaries if summary.step_times_s}
        return sorted(timed, key=lambda variant: variant.order)

    def colour(self, *, legend: bool = False) -> Spec:
        return coloured("variant", variant_colours(self.variants), legend=legend)

    def panel(
        self,
        name: str,
        title: str,
        text: str | Callable[[Sequence[DataRow]], str],
        *,
        columns: Columns,
        rows: Mapping[str, Sequence[DataRow]] | Callable[[Comparison], Iterable[DataRow]],
        chart: str = "",
        **values: object,
    ) -> Panel | None:
        """A panel with rows for each shown setting that has any; None without any.

        `text` may be made of all rows, and `rows` of a setting's comparison. `values` are those of `drawn`.
        """
        if callable(rows):
            rows = {comparison.setting.setting: list(rows(comparison)) for comparison in self.shown}
        rows = {key: rows_of_key for key, rows_of_key in rows.items() if rows_of_key}
        if not rows:
            return None
        text = text if isinstance(text, str) else text([row for rows_of_key in rows.values() for row in rows_of_key])
        usual = {"colour": self.colour(), "height": row_step(self.variants)}
        spec = drawn(chart, columns, **usual | values) if chart else None
        return Panel(name, title, text, columns, rows, spec, "setting", self.first, self.labels)


def apart(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts without the parts between commas that all of them have. A single text stays whole."""
    parts = {key: text.split(", ") for key, text in texts.items()}
    common = set.intersection(*map(set, parts.values())) if len(parts) > 1 else set()
    return {key: ", ".join(part for part in parts_of_key if part not in common) for key, parts_of_key in parts.items()}


def _weight(comparison: Comparison) -> tuple[int, int, int]:
    return len(comparison.fastest_first), len(comparison.setting.devices), comparison.setting.batch


def by_environment(
    records: Iterable[Record],
    skipped: Iterable[Skip] = (),
    counts: Sequence[CountRecord] = (),
    reference: VariantId | None = None,
    compared: Comparisons | None = None,
) -> list[MachineResults]:
    """In order of appearance. `compared` is of all records; if they are of one machine, they are not compared again.

    A record without an environment, because it failed early, goes to the machine of its run. Skipped cases and counts
    go to the first machine.
    """
    records, skipped = list(records), list(skipped)
    of_run = {record.run: record.environment for record in reversed(records) if record.environment is not None}
    groups: dict[Environment | None, list[Record]] = {} if records or not skipped else {None: []}
    for record in records:
        groups.setdefault(record.environment or of_run.get(record.run), []).append(record)
    machines = []
    for name, (environment, machine_records) in zip(machine_names(list(groups)), groups.items(), strict=True):
        if compared is None or len(groups) > 1:
            compared = compare(machine_records, skipped, reference=reference, allow_different=True)
        machines.append(MachineResults(name, environment, machine_records, compared, counts))
        skipped, counts = [], ()
    return machines


def machine_names(environments: Sequence[Environment | None]) -> list[str]:
    """The host and devices. Equal names are told apart by what differs."""
    same: dict[str, list[Environment]] = {}
    for environment in filter(None, environments):
        same.setdefault(_name(environment), []).append(environment)
    return [
        "unknown machine" if environment is None else _name(environment, differences(same[_name(environment)]))
        for environment in environments
    ]


def _name(environment: Environment, differing: Iterable[str] = ()) -> str:
    devices = sorted(set(environment.gpus)) or [environment.cpu_model]
    values = {field: getattr(environment, field) for field in differing if field not in _NAMED}
    more = [f"{field} {shortened(str(value), 12)}" for field, value in values.items() if value is not None]
    return ", ".join([f"{environment.hostname}: {', '.join(devices)}", *more])
