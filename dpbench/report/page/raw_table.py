"""The table of all cases: a row for each, with the figures that a spreadsheet needs."""

from collections.abc import Iterator, Sequence

from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import Cell, RawTable
from dpbench.results.compare import Row
from dpbench.sweep.devices import short_devices

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
    percent = row.percent_of_limit if row.percent_of_limit is not None else row.percent_of_single
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
        _rounded(row.ratio.times.value if row.ratio else None),
        _rounded(percent),
        _rounded(found.items_per_s),
        found.rounds_ok,
        _rounded(rss, 2**-20),
    )


def _rounded(value: float | None, factor: float = 1.0) -> float | None:
    return None if value is None else float(f"{value * factor:.{_DIGITS}g}")
