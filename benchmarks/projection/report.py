"""The page `results/projection.md`: predictions beside published steps, as Markdown. Pure."""

from collections.abc import Mapping, Sequence

from benchmarks.projection.calibrate import HOST
from benchmarks.projection.left_out import left_out, model_error_of, orders_left_out
from benchmarks.projection.outcomes import Order, Outcome, Total, claimed, coverages_of, is_inside, models_of, totals_of
from benchmarks.projection.row_file import Table
from dpbench.projection.project import Interval

_HEAD = """# The projection beside published figures

`dpbench project` says what a step costs on a machine that nobody here owns. This page compares it with steps that
others measured and published. The predictions of all rows were committed (be9b771) before the measured column was
filled in. One fault was mended afterwards: the column *step* of an A100 had the factor of a V100.

Two ranges in `dpbench/machines/parts.toml` quote rows of this page, so these rows are no free test of them: `overlap`
over NVLink (pytorch-ddp), and the bandwidth of `nvlink2` (hf-titan). No other number is from a row.

One factor is taken from the published step of one device. It is a factor of computation, or of the host if the
projection says that the host binds. All other parameters keep their ranges. Steps on several devices are predicted.
"""
_COLUMNS = """\
| column | says |
|---|---|
| one | the published step of one device, ms; it sets the factor |
| factor | what multiplies the times of the operators |
| predicted | the mid case and the 90 % interval, ms; widened by the error that the other tables give |
| measured | the published step, ms; *in* if it is inside the interval |
| scaling | predicted over measured speed-up for each device, less 1 |
| step | predicted over measured step, less 1, with the factor of the table's first model on such devices |
| no factor | the same without any factor |
| naive | the same for one device's step plus the counted bytes over the bandwidth |
"""
_ERROR = """\
The draws hold only what is unknown about a machine. With a factor, {inside} of {rows} steps lie in their interval.
So `dpbench project` moves both ends of each interval out, by the factor by which published steps lie outside.

| interval of | factor | from |
|---|--:|---|
| a step time | {step:.3f} | steps without a factor, on one and on several devices |
| a speed-up over one device | {ratio:.3f} | steps with the factor of one device |
| a ratio of two schemes for several devices | {schemes:.3f} | the same, with two independent errors |

A table counts by its worst row, because its rows err alike. The worst table sets the factor. With {tables} tables, a
further one lies inside {tables} times in {more}, if it is like them. For 90 % nine tables are needed. On this page the
rows of a table have the error that the other tables give.

The speed of one device is common to all variants on a machine. Its error cancels in a ratio, so a ratio has a smaller
factor. Of the rows that count, one pair has two schemes on one machine. It cannot say what else two schemes have in
common, so nothing else cancels.
"""


def page(
    heading: str, tables: Mapping[str, Table], outcomes: Sequence[Outcome], orders: Sequence[Order], coverage_aim: float
) -> str:
    """Return the whole page."""
    shown = left_out(outcomes)
    counted = [each for each in shown if each.why_not is None]
    others = [each for each in shown if each.why_not is not None]
    parts = [
        _HEAD,
        _indented(heading),
        "## Against the aims\n\n" + _totals(totals_of(outcomes), shown, coverage_aim),
        "## The model's error\n\n" + _error(outcomes),
        "## Rows that count\n\n" + _COLUMNS + "\n" + _rows(counted),
        "## The order of variants\n\nAn order is claimed if the interval of the ratio of both steps excludes 1.\n\n"
        + _orders(orders_left_out(orders, outcomes)),
        "## One device, without a factor\n\nWhat a user gets who has measured nothing.\n\n" + _single(shown),
        "## Rows that do not count\n\nA fact about these runs is missing, so no claim counts them.\n\n"
        + _reasons(others),
        "## Errors and their reasons\n\n" + _remarks(tables),
        "## Sources\n\n" + _sources(tables),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def _totals(totals: Sequence[Total], outcomes: Sequence[Outcome], aim: float) -> str:
    rows = ["| error | rows | median | worst | aim for the worst | |", "|---|--:|--:|--:|--:|---|"]
    for total in totals:
        verdict = "" if total.aim is None else "**missed**" if total.is_missed else "reached"
        goal = "" if total.aim is None else f"{total.aim:.0%}"
        rows.append(f"| {total.name} | {total.cases} | {total.median:.1%} | {total.worst:.1%} | {goal} | {verdict} |")
    for name, inside, count in coverages_of(outcomes):
        verdict = "reached" if inside / count >= aim else "**missed**"
        rows.append(f"| inside, {name} | {count} | | {inside} inside | {aim:.0%} inside | {verdict} |")
    return "\n".join(rows) + "\n"


def _error(outcomes: Sequence[Outcome]) -> str:
    found = model_error_of(outcomes)
    rows = claimed(outcomes)
    tables = len({each.table for each in rows})
    return _ERROR.format(
        step=found.step_time,
        ratio=found.ratio,
        schemes=found.of_ratio(2),
        inside=sum(is_inside(each.predicted, each.measured) for each in rows),
        rows=len(rows),
        tables=tables,
        more=tables + 1,
    )


def _rows(outcomes: Sequence[Outcome]) -> str:
    rows = [
        "| table | model | variant on | one | factor | predicted | measured | | scaling | step | no factor | naive |",
        "|---|---|---|--:|--:|--:|--:|---|--:|--:|--:|--:|",
    ]
    for each in outcomes:
        one = "" if each.one_device is None else f"{each.one_device:.5g}"
        of_host = " host" if each.factor == HOST else ""
        factor = "" if each.factor_mid is None else f"{each.factor_mid:.2f}{of_host}"
        errors = [""] * 4
        measured, inside = "", ""
        if each.measured is not None:
            measured = f"{each.measured:.5g}"
            inside = "in" if is_inside(each.predicted, each.measured) else "**out**"
            steps = (each.by_first, each.alone.mid, each.naive)
            errors = [f"{error:+.1%}" for error in (each.scaling_error(), *map(each.step_error, steps))]
        cells = [
            each.table,
            each.model,
            f"{each.variant} on {each.devices} of {each.machine}",
            one,
            factor,
            _interval(each.predicted),
            measured,
            inside,
            *errors,
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _interval(found: Interval) -> str:
    return f"{found.mid:.4g} [{found.low:.4g}, {found.high:.4g}]"


def _orders(orders: Sequence[Order]) -> str:
    rows = ["| step of | over step of | predicted | measured | order |", "|---|---|--:|--:|---|"]
    for each in orders:
        verdict = "not claimed" if not each.is_claimed else "right" if each.is_right else "**wrong**"
        measured = "" if each.measured is None else f"{each.measured:.3f}"
        ratio = f"{each.predicted.mid:.3f} [{each.predicted.low:.3f}, {each.predicted.high:.3f}]"
        rows.append(f"| {each.table}: {each.one} | {each.other} | {ratio} | {measured} | {verdict} |")
    return "\n".join(rows) + "\n"


def _single(outcomes: Sequence[Outcome]) -> str:
    rows = ["| table | model | machine | predicted, ms | published, ms | | error |", "|---|---|---|--:|--:|---|--:|"]
    for each in models_of(outcomes):
        alone, published = each.one_device_alone, each.one_device or 0.0
        inside = "in" if is_inside(alone, published) else "**out**"
        cells = [each.table, each.model, each.machine, _interval(alone), f"{published:.5g}", inside]
        rows.append("| " + " | ".join([*cells, f"{alone.mid / published - 1:+.0%}"]) + " |")
    return "\n".join(rows) + "\n"


def _reasons(outcomes: Sequence[Outcome]) -> str:
    reasons = dict.fromkeys((each.table, each.why_not) for each in outcomes)
    return "".join(f"- {table}: {reason}.\n" for table, reason in reasons)


def _remarks(tables: Mapping[str, Table]) -> str:
    found = [f"- {name}: {' '.join(table.remark.split())}\n" for name, table in tables.items() if table.remark]
    return "".join(found) or "None are written down yet.\n"


def _sources(tables: Mapping[str, Table]) -> str:
    return "".join(f"- {name}: [{table.title}]({table.address}). {table.source}.\n" for name, table in tables.items())
