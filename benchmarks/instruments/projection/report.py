"""The page `results/projection.md`: sums beside published steps, as Markdown. Pure."""

from collections.abc import Mapping, Sequence

from benchmarks.instruments.projection.fit import Row
from benchmarks.instruments.projection.outcomes import Outcome, claimed, totals_of
from benchmarks.instruments.projection.row_file import Table
from dpbench.projection.step_sum import Fitted, Part

_HEAD = """# The projection beside published figures

`dpbench project` says what a step costs on a machine that nobody here owns. This page compares its sum with steps that
others measured and published. Each row is predicted with the constants and errors of the other tables alone.

The published step of one device is given, and it sets the speed of computation. Steps on several devices are predicted.
One range in `dpbench/machines/parts.toml` quotes a row of this page: the bandwidth of `nvlink2` (hf-titan).

One choice was made with the rows known. The stock wrapper's weights and gradients go over NCCL's ring where NVLink
joins the devices, and over PCIe as the copies are counted. With the ring, vertex-t4 would be 7 % lower.
On eight devices the counted copies take 4 times as long as the ring would, and no row tests which is right.
"""
_CONSTANTS = """\
| constant | value | from |
|---|--:|---|
| `speed_float32` | {0.speed_float32:.3f} | published over computed steps of one device, products in float32 |
| `speed_tf32` | {0.speed_tf32:.3f} | the same, some products in TF32: the two tables with an A100 |
| `beside` | {0.beside:.3f} | DDP's measured steps less their sums, over their computation |
| `step_error` | {0.step_error:.3f} | the worst step without the published step of one device |
| `ratio_error` | {0.ratio_error:.3f} | the worst step with it |

A constant is the median over tables of each table's median. An error is the worst of all tables, each predicted
without itself. The interval is the time over and times its error.
"""
_COLUMNS = """\
Times are in ms. *one* is the published step of one device. *rest* is what the computation does not hide: input,
weights, outputs, gradients, and computation that collectives slow down. The host binds none of these steps.
*error* is predicted over measured, less 1, and **bold** if the step is outside its interval.
"""


def page(
    heading: str, tables: Mapping[str, Table], outcomes: Sequence[Outcome], rows: Sequence[Row], fitted: Fitted
) -> str:
    parts = [
        _HEAD,
        "".join(f"    {line}\n" for line in heading.splitlines()),
        "## Errors\n\n" + _totals(outcomes),
        "## Constants\n\n" + _CONSTANTS.format(fitted),
        "## Rows that count\n\n" + _COLUMNS + "\n" + _rows(claimed(outcomes)),
        "## Rows that do not count\n\nA fact about these runs is missing, so no claim counts them.\n\n"
        + _reasons(rows, outcomes),
        "## Errors and their reasons\n\n" + _remarks(tables),
        "## Sources\n\n" + "".join(f"- {n}: [{t.title}]({t.address}). {t.source}.\n" for n, t in tables.items()),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _table(head: Sequence[str], align: str, cells: Sequence[Sequence[str]]) -> str:
    rules = ["--:" if side == "r" else "---" for side in align]
    return "".join("| " + " | ".join(row) + " |\n" for row in (head, rules, *cells))


def _totals(outcomes: Sequence[Outcome]) -> str:
    cells = [
        [
            total.name,
            str(total.cases),
            f"{total.median:.1%}",
            f"{total.worst:.1%}",
            "" if total.inside is None else str(total.inside),
        ]
        for total in totals_of(outcomes)
    ]
    return _table(["error of", "rows", "median", "worst", "inside"], "lrrrr", cells)


def _rows(outcomes: Sequence[Outcome]) -> str:
    head = ["table", "model", "variant on", "one", "computation", "rest", "predicted", "measured", "error"]
    return _table(head, "lllrrrrrr", [_row(outcome) for outcome in outcomes])


def _row(outcome: Outcome) -> list[str]:
    row, computation = outcome.row, 1e3 * outcome.sum.parts[Part.COMPUTE]
    error = f"{outcome.error(outcome.predicted):+.1%}"
    return [
        row.table,
        row.series.model,
        f"{row.case.variant}, {row.machine.devices} of {row.case.machine}",
        f"{row.series.one_device_ms:.5g}",
        f"{computation:.1f}",
        f"{1e3 * outcome.sum.device_s - computation:.1f}",
        f"{outcome.predicted:.4g}",
        f"{outcome.measured:.5g}",
        error if outcome.is_inside else f"**{error}**",
    ]


def _reasons(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> str:
    errors: dict[tuple[str, str], list[str]] = {(row.table, row.why_not): [] for row in rows if row.why_not is not None}
    for outcome in outcomes:
        if outcome.row.why_not is not None:
            errors[outcome.row.table, outcome.row.why_not].append(f"{outcome.error(outcome.predicted):+.1%}")
    return "".join(
        f"- {table}: {reason}." + (f" Errors: {', '.join(shares)}.\n" if shares else "\n")
        for (table, reason), shares in errors.items()
    )


def _remarks(tables: Mapping[str, Table]) -> str:
    return "".join(f"- {name}: {' '.join(t.remark.split())}\n" for name, t in tables.items() if t.remark)
