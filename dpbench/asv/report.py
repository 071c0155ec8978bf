"""A comparison of two commits as tables and as JSON.

SCHEMA history
    1  first.
    2  `change` of each result.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dpbench.asv.compare import AsvChange, BenchmarkPairs, Figure, Gap, Pair
from dpbench.report.units import estimate, number, time_unit
from dpbench.sweep.outside import one_line

SCHEMA = 2
_NONE = "-"
_LEGEND = (
    "Medians as asv compare prints them. ratio: head over base; below 1 is less. The 95 % interval is of the samples, "
    "if asv kept six or more (asv run --record-samples, asv continuous). Differences between processes are not in it. "
    "worse: a count that grew, a benchmark that fails, or a ratio of the factor or more whose interval is above 1."
)


def asv_json(
    machine: str, base: str, head: str, found: tuple[BenchmarkPairs, ...], units: Mapping[str, str]
) -> dict[str, Any]:
    """Return ``{"schema", "machine", "base", "head", "results"}``.

    Fields that do not apply are None.
    """
    return {
        "schema": SCHEMA,
        "machine": machine,
        "base": base,
        "head": head,
        "results": [
            {
                "environment": benchmark.environment,
                "benchmark": benchmark.name,
                "parameters": list(pair.params),
                "unit": units.get(benchmark.name),
                "base": _value(pair.base),
                "head": _value(pair.head),
                "ratio": None if pair.ratio is None else asdict(pair.ratio),
                "reason": pair.why_no_ratio,
                "change": pair.change,
            }
            for benchmark in found
            for pair in benchmark.pairs
        ],
    }


def asv_text(machine: str, base: str, head: str, found: tuple[BenchmarkPairs, ...], units: Mapping[str, str]) -> Group:
    """Return a table for each benchmark in both commits, with the reasons for missing ratios."""
    parts: list[RenderableType] = [Text(f"base {base[:8]}, head {head[:8]} on {machine}"), Text()]
    for benchmark in found:
        pairs = [pair for pair in benchmark.pairs if not pair.is_empty]
        reasons = {pair.why_no_ratio for pair in pairs}
        if len(reasons) == 1 and not any(pair.is_full for pair in pairs):
            parts += [Text(f"{_name(benchmark)}: {reasons.pop()}"), Text()]
        elif pairs:
            parts += [_table(benchmark, pairs, units.get(benchmark.name)), *map(Text, _notes(pairs)), Text()]
    left_out = sum(pair.is_empty for benchmark in found for pair in benchmark.pairs)
    if left_out:
        parts.append(Text(f"{left_out} combinations of parameters were skipped in both"))
    return Group(*parts, Text(_LEGEND, style="dim"), *_worse(found))


def _worse(found: tuple[BenchmarkPairs, ...]) -> Iterator[Text]:
    """Yield how many figures are worse, and their names: the last lines, which a log of CI shows first."""
    names = [
        one_line(f"{benchmark.name}({', '.join(pair.params)}), {benchmark.environment}")
        for benchmark in found
        for pair in benchmark.pairs
        if pair.change is AsvChange.WORSE
    ]
    yield Text(f"worse in head: {len(names) or 'nothing'}", style="bold red" if names else "bold green")
    yield from (Text(f"  {name}") for name in names)


def _name(benchmark: BenchmarkPairs) -> str:
    return one_line(f"{benchmark.name}, {benchmark.environment}")


def _table(benchmark: BenchmarkPairs, pairs: list[Pair], unit: str | None) -> Table:
    title = Text(_name(benchmark), style="bold")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    scale, of_unit = _scale(pairs, unit)
    table.add_column("parameters", overflow="fold")
    for header in (f"base{of_unit}", f"head{of_unit}", "ratio to base", "change"):
        table.add_column(Text(header), justify="right", overflow="fold")
    for pair in pairs:
        ratio = _NONE if pair.ratio is None else estimate(pair.ratio)
        name = ", ".join(pair.params).replace("'", "")
        cells = (name, _cell(pair.base, scale), _cell(pair.head, scale), ratio, pair.change or "")
        style = "red" if pair.change is AsvChange.WORSE else ""
        table.add_row(*(Text(one_line(cell)) for cell in cells), style=style)
    return table


def _scale(pairs: list[Pair], unit: str | None) -> tuple[float, str]:
    """Return the factor of the unit that is shown, and the end of the column header."""
    if unit != "seconds":
        return 1.0, "" if unit is None else f", {one_line(unit)}"
    figures = [figure for pair in pairs for figure in (pair.base, pair.head)]
    scale, name = time_unit(figure.result for figure in figures if not isinstance(figure, Gap) and figure.result > 0)
    return scale, f", {name}"


def _notes(pairs: list[Pair]) -> Iterator[str]:
    """Yield why pairs with two numbers have no ratio. Gaps are shown in the table itself."""
    reasons = dict.fromkeys(pair.why_no_ratio for pair in pairs if pair.is_full and pair.why_no_ratio is not None)
    yield from (f"no ratio: {reason}" for reason in reasons)


def _cell(figure: Figure, scale: float) -> str:
    if isinstance(figure, Gap):
        return str(figure)
    shown = figure.result / scale
    return f"{shown:,.0f}" if scale == 1.0 and shown.is_integer() else number(shown)


def _value(figure: Figure) -> float | None:
    return None if isinstance(figure, Gap) else figure.result
