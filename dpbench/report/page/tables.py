"""Tables without a chart: how cases ended, the environment, and all cases with the figures that a spreadsheet needs."""

from collections.abc import Iterator, Sequence

from dpbench.analysis.answer import place
from dpbench.analysis.compare import Row
from dpbench.analysis.summary import Summary
from dpbench.cases.devices import short_devices
from dpbench.records.record import Outcome
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import ALL, Cell, DataRow, Panel, RawTable

_MOST_REASONS = 200
_MOST_LETTERS = 600


def outcomes(machine_results: MachineResults) -> Panel | None:
    """Return the cases that failed or were skipped, or failed in some rounds, with reasons; None without any."""
    rows = list(_outcome_rows(machine_results))
    if not rows:
        return None
    more = f" The first {_MOST_REASONS} of {len(rows)} are shown." if len(rows) > _MOST_REASONS else ""
    columns = {name: name for name in ("variant", "setting", "outcome", "reason")}
    text = f"Cases without times, and cases in which some rounds failed.{more}"
    return Panel("outcomes", "Failed and skipped", text, columns, {ALL: rows[:_MOST_REASONS]})


def environment(machine_results: MachineResults) -> Panel | None:
    """Return what must be equal before times are compared; None if no record has it."""
    if machine_results.environment is None:
        return None
    fields = machine_results.environment.model_dump(mode="json")
    rows: list[DataRow] = [
        {"field": name.replace("_", " "), "value": shown_value(value)}
        for name, value in fields.items()
        if shown_value(value)
    ]
    text = "The machine and the versions, as the measuring processes saw them."
    return Panel("environment", "Environment", text, {"field": "field", "value": "value"}, {ALL: rows})


def _outcome_rows(machine_results: MachineResults) -> Iterator[DataRow]:
    for summary in machine_results.summaries:
        if summary.reason is not None:
            yield _outcome_row(summary)


def _outcome_row(summary: Summary) -> DataRow:
    reason = " ".join(str(summary.reason).split())
    outcome = "some rounds failed" if summary.outcome is Outcome.OK else summary.outcome.replace("_", " ")
    return {
        "variant": str(summary.case.variant),
        "setting": place(summary.case),
        "outcome": outcome,
        "reason": reason if len(reason) <= _MOST_LETTERS else f"{reason[:_MOST_LETTERS]}…",
    }


def shown_value(value: object) -> str:
    """Return a field of the environment as text: equal entries of a list once, with their number."""
    if isinstance(value, list | tuple):
        parts = [str(each) for each in value if each is not None]
        counted = dict.fromkeys(parts)
        return ", ".join(f"{parts.count(each)} x {each}" if parts.count(each) > 1 else each for each in counted)
    return "" if value is None else str(value)


MOST_ROWS = 10_000
_DIGITS = 5
_COLUMNS = {
    **{name: name for name in ("machine", "workload", "variant", "devices", "batch", "mode", "dtype", "outcome")},
    "time_ms": "ms a step",
    "low_ms": "low, 95 %",
    "high_ms": "high, 95 %",
    "ratio": "ratio to reference",
    "percent": "% of ideal",
    "items_per_s": "items/s",
    "rounds": "rounds",
    "host_mib": "host MiB",
}


def raw_table(machines: Sequence[MachineResults]) -> RawTable:
    """Return the table of the first `MOST_ROWS` cases."""
    rows: list[Sequence[Cell]] = []
    count = 0
    first = 0 if len(machines) > 1 else 1  # one machine needs no column
    for machine, name in zip(machines, _short_names(machines), strict=True):
        for row in _once(machine):
            count += 1
            if len(rows) < MOST_ROWS:
                rows.append(_cells(name, row)[first:])
    fields = list(_COLUMNS)[first:]
    order = _what_differs_first(rows, len(fields))
    columns = {fields[i]: _COLUMNS[fields[i]] for i in order}
    return RawTable(columns, [[row[i] for i in order] for row in rows], count - len(rows))


def _short_names(machines: Sequence[MachineResults]) -> list[str]:
    """Return the names without the versions, if that tells the machines apart. A cell of six lines hides the rest."""
    names = [machine.name for machine in machines]
    short = [name.partition(",")[0] for name in names]
    return short if len(set(short)) == len(short) else names


def _what_differs_first(rows: Sequence[Sequence[Cell]], columns: int) -> list[int]:
    """Return the places of the columns: last those that have one value, such as the workload of a comparison."""
    same = [len(rows) > 1 and len({row[i] for row in rows}) == 1 for i in range(columns)]
    return sorted(range(columns), key=lambda i: same[i])


def _once(machine: MachineResults) -> Iterator[Row]:
    """Yield a row for each case. `single` is in several comparisons; its first row has the ratio."""
    seen = set()
    for row in (row for comparison in machine.compared.comparisons for row in comparison.rows):
        if row.summary.case not in seen:
            seen.add(row.summary.case)
            yield row
    yield from (Row(summary) for summary in machine.compared.single_device_baselines)


def _cells(machine: str, row: Row) -> Sequence[Cell]:
    found, case = row.summary, row.summary.case
    time = found.step_time_s
    percent = row.percent
    rss = found.peak_rss_bytes.value if found.peak_rss_bytes is not None else None
    return (
        machine,
        case.workload,
        str(case.variant),
        short_devices(case.devices),
        case.batch,
        str(case.mode),
        str(case.dtype),
        "ok, few samples" if found.thin_rounds else found.outcome.replace("_", " "),
        *(_rounded(value, 1e3) for value in ((time.value, time.low, time.high) if time else (None, None, None))),
        _rounded(row.ratio.value if row.ratio else None),
        _rounded(percent),
        _rounded(found.items_per_s),
        found.rounds_ok,
        _rounded(rss, 2**-20),
    )


def _rounded(value: float | None, factor: float = 1.0) -> float | None:
    return None if value is None else float(f"{value * factor:.{_DIGITS}g}")
