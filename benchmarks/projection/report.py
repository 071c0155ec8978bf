"""The page `results/projection.md`: sums beside published steps, as Markdown. Pure."""

from collections.abc import Mapping, Sequence

from benchmarks.projection.fit import Row
from benchmarks.projection.outcomes import Order, Outcome, claimed, models_of, orders_of, totals_of
from benchmarks.projection.row_file import Table
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
_AIMS = """\
A replay of recorded steps was tried before. Its median error was 4.2 % for DDP and 30.0 % at worst. For DataParallel it
was 7.1 % and 7.6 %. Without the step of one device, it had 20.3 % and 37.4 % for DDP.
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
without itself. The interval is the time over and times its error. All other numbers are of machine files, with sources.
"""
_COLUMNS = """\
Times are in ms. *error* is predicted over measured, less 1. *alone* is the error if one device's step is not known.
*naive* is the error of one device's step plus the bytes over the bandwidth. *in*: inside the interval.
"""


def page(
    heading: str, tables: Mapping[str, Table], outcomes: Sequence[Outcome], rows: Sequence[Row], found: Fitted
) -> str:
    """Return the whole page."""
    parts = [
        _HEAD,
        "".join(f"    {line}\n" for line in heading.splitlines()),
        "## Errors\n\n" + _totals(outcomes) + "\n" + _AIMS,
        "## Constants\n\n" + _CONSTANTS.format(found),
        "## Rows that count\n\n" + _COLUMNS + "\n" + _rows(claimed(outcomes)),
        "## Their sums\n\nIn ms. A step takes as long as the host, or as all other columns if these are longer.\n\n"
        + _sums(claimed(outcomes)),
        "## The order of variants\n\nAn order is claimed if the interval of the ratio excludes 1.\n\n"
        + _orders(list(orders_of(outcomes))),
        "## One device, without its published step\n\n" + _single(outcomes),
        "## Rows that do not count\n\nA fact about these runs is missing, so no claim counts them.\n\n"
        + _rows([each for each in outcomes if not each.row.is_claimed])
        + "\n"
        + _reasons(rows),
        "## Errors and their reasons\n\n" + _remarks(tables),
        "## Sources\n\n" + "".join(f"- {n}: [{t.title}]({t.address}). {t.source}.\n" for n, t in tables.items()),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _table(head: Sequence[str], align: str, cells: Sequence[Sequence[str]]) -> str:
    rules = ["--:" if each == "r" else "---" for each in align]
    return "".join("| " + " | ".join(row) + " |\n" for row in (head, rules, *cells))


def _totals(outcomes: Sequence[Outcome]) -> str:
    cells = [
        [
            each.name,
            str(each.cases),
            f"{each.median:.1%}",
            f"{each.worst:.1%}",
            "" if each.inside is None else str(each.inside),
        ]
        for each in totals_of(outcomes)
    ]
    return _table(["error of", "rows", "median", "worst", "inside"], "lrrrr", cells)


def _rows(outcomes: Sequence[Outcome]) -> str:
    head = ["table", "model", "variant on", "one", "predicted", "measured", "", "error", "alone", "naive"]
    cells = [
        [
            each.row.table,
            each.row.series.model,
            _place(each),
            f"{each.row.series.one_device_ms:.5g}",
            f"{each.predicted:.4g} [{each.predicted / each.ratio_error:.4g}, {each.predicted * each.ratio_error:.4g}]",
            f"{each.measured:.5g}",
            "in" if each.is_inside else "**out**",
            *(f"{each.error(value):+.1%}" for value in (each.predicted, each.alone, each.naive)),
        ]
        for each in outcomes
    ]
    return _table(head, "lllrrrlrrr", cells)


def _place(outcome: Outcome) -> str:
    row = outcome.row
    return f"{row.case.variant} on {row.machine.devices} of {row.case.machine}"


def _sums(outcomes: Sequence[Outcome]) -> str:
    shown = [part for part in Part if any(part in each.sum.parts for each in outcomes)]
    cells = [
        [
            each.row.table,
            each.row.series.model,
            _place(each),
            *("" if part not in each.sum.parts else f"{1e3 * each.sum.parts[part]:.1f}" for part in shown),
            f"{1e3 * each.sum.host_s:.1f}",
        ]
        for each in outcomes
    ]
    return _table(["table", "model", "variant on", *shown, Part.HOST], "lll" + "r" * (len(shown) + 1), cells)


def _orders(orders: Sequence[Order]) -> str:
    cells = [
        [
            f"{each.table}: {each.one}",
            each.other,
            f"{each.ratio:.3f} [{each.ratio / each.error:.3f}, {each.ratio * each.error:.3f}]",
            f"{each.measured:.3f}",
            "not claimed" if not each.is_claimed else "right" if each.is_right else "**wrong**",
        ]
        for each in orders
    ]
    return _table(["step of", "over step of", "predicted", "measured", "order"], "llrrl", cells)


def _single(outcomes: Sequence[Outcome]) -> str:
    cells = [
        [
            each.row.table,
            each.row.series.model,
            each.row.case.machine,
            f"{each.one_alone:.4g} [{each.one_alone / each.step_error:.4g}, {each.one_alone * each.step_error:.4g}]",
            f"{each.row.series.one_device_ms:.5g}",
            "in" if each.is_one_inside else "**out**",
            f"{each.one_alone / (each.row.series.one_device_ms or 1) - 1:+.0%}",
        ]
        for each in models_of(outcomes)
    ]
    return _table(["table", "model", "machine", "predicted, ms", "published, ms", "", "error"], "lllrrlr", cells)


def _reasons(rows: Sequence[Row]) -> str:
    reasons = dict.fromkeys((row.table, row.why_not) for row in rows if row.why_not is not None)
    return "".join(f"- {table}: {reason}.\n" for table, reason in reasons)


def _remarks(tables: Mapping[str, Table]) -> str:
    return "".join(f"- {name}: {' '.join(t.remark.split())}\n" for name, t in tables.items() if t.remark)
