"""Charts of times: which variant is faster, how far from the ideal it is, a technique's worth, and projections."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from dpbench.analysis.answer import circumstances, ideal_in_words
from dpbench.analysis.compare_variants import Comparison
from dpbench.analysis.ladder import ladders
from dpbench.analysis.summary import Summary
from dpbench.cases.case import Case
from dpbench.cases.names import are_shared
from dpbench.cases.parameters import value_text
from dpbench.cases.variants import VariantId, VariantName
from dpbench.judge.estimate import Estimate
from dpbench.report.page.drawing import (
    BAD,
    GOOD,
    LABEL_ROOM,
    LOG,
    MUTED,
    STEP_PX,
    axis_of,
    coloured,
    drawn,
    row_step,
    rows_of,
    series,
)
from dpbench.report.page.inputs import ProjectedMachine, ProjectedVariant
from dpbench.report.page.machines import MachineResults, apart
from dpbench.report.page.parts import DataRow, Panel
from dpbench.text.quantities import number

_MS = 1e-3
_CUT = " ▸"
_LARGEST = 5.0


def ratios(machine: MachineResults) -> Panel | None:
    """Times over the reference's."""
    references = {str(comparison.reference) for comparison in machine.shown if comparison.reference is not None}
    over = " or ".join(sorted(references))
    text = (
        f"Each dot is a variant's time for a step over the time of {over}. The line is its 95 % interval. "
        "Left of 1 is faster. A variant whose line reaches 1 may be as fast."
    )
    columns = {"variant": "variant", "time": "ms a step"}
    columns |= {"shown": f"time over {over} [95 % interval]", "rounds": "rounds"}

    def rows(comparison: Comparison) -> list[DataRow]:
        return _ratios([(row.summary, row.ratio) for row in comparison.rows if row.ratio is not None])

    title = f"Time compared with {over}"
    look = _ratio_look(over, machine)
    return machine.panel("ratios", title, _with_cuts(text), columns=columns, rows=rows, chart="intervals", **look)


def _with_cuts(text: str) -> Callable[[Sequence[DataRow]], str]:
    """The text, with a sentence on ratios beyond the chart if there are any."""

    def of_rows(rows: Sequence[DataRow]) -> str:
        is_cut = any(str(row["label"]).endswith(_CUT) for row in rows)
        return f"{text} A dot with ▸ is beyond the chart." if is_cut else text

    return of_rows


def _ratio_look(over: str, machine: MachineResults) -> dict[str, object]:
    height = row_step(machine.variants, least=STEP_PX + 8)
    return {"mark": 1.0, "value": axis_of("ratio", f"time over {over}", **LOG), "height": height}


def _ratios(pairs: Sequence[tuple[Summary, Estimate]]) -> list[DataRow]:
    fields = ratio_fields([ratio for _, ratio in pairs])
    return [
        {
            "variant": str(summary.case.variant),
            "shown": ratio.text(),
            "time": summary.step_time_s.text(_MS) if summary.step_time_s else None,
            "rounds": f"{summary.rounds_ok}/{summary.rounds}",
            **of_chart,
        }
        for (summary, ratio), of_chart in zip(pairs, fields, strict=True)
    ]


def ratio_fields(ratios: Sequence[Estimate]) -> list[DataRow]:
    """The fields of the rows that the chart draws. Without an interval the ends are the value.

    A ratio of more than `_LARGEST` medians has no line, and stands at the end of the others'. One of at most 1 is never
    cut, because the chart reaches its mark at 1 in any case.
    """
    most = max(_LARGEST * median(ratio.value for ratio in ratios), 1.0) if ratios else 0.0
    end = max((ratio.ends[1] for ratio in ratios if ratio.value <= most), default=0.0)
    fields: list[DataRow] = []
    for ratio in ratios:
        label, (value, low, high) = number(ratio.value), (ratio.value, *ratio.ends)
        if ratio.value > most:
            label, value, low, high = f"{label}{_CUT}", end, end, end
        fields.append({"ratio": value, "low": low, "high": high, "label": label})
    return fields


_NOT_DECIDED = ("not decided", MUTED)
_VERDICTS = {"slower": ("slower than tuned", BAD), "undecided": _NOT_DECIDED, "faster": ("faster than tuned", GOOD)}


def ablation(machine: MachineResults) -> Panel | None:
    """Tuned with one technique changed, over tuned."""
    columns = {"variant": "variant", "what": "is", "shown": "time over tuned [95 % interval]", "verdict": "verdict"}
    text = (
        "Each row is tuned with one technique changed. Right of 1 the change costs time, so tuned's own choice is "
        "worth that much. A line that reaches 1 decides nothing."
    )
    title, look = "What each technique is worth", _ratio_look("that of tuned", machine)
    look["colour"] = coloured("verdict", list(_VERDICTS.values()))
    return machine.panel("ablation", title, _with_cuts(text), columns=columns, rows=_changes, chart="intervals", **look)


def _changes(comparison: Comparison) -> list[DataRow]:
    timed = [row.summary for row in comparison.fastest_first if row.summary.case.variant.name is VariantName.TUNED]
    tuned = next((summary for summary in timed if str(summary.case.variant) == VariantName.TUNED), None)
    pairs = [(summary, summary.ratio_to(tuned)) for summary in reversed(timed) if summary is not tuned] if tuned else []
    more = [{"what": _what(summary.case.variant), "verdict": _VERDICTS[ratio.verdict][0]} for summary, ratio in pairs]
    return [{**row, **cells} for row, cells in zip(_ratios(pairs), more, strict=True)]


def _what(variant: VariantId) -> str:
    """What the variant changes, such as ``send tensors together in buckets: false``."""
    parameters = variant.name.parameters
    return "; ".join(
        f"{parameters[key].sentence if key in parameters else key}: {value_text(value)}"
        for key, value in variant.values.items()
    )


_NEAR_IDEAL_PERCENT = 85
"""From here on the mark of the ideal would run through the label, so the label stands behind the mark."""


def throughput_here(machine: MachineResults) -> Panel | None:
    """Items a second by variant, with a mark at the ideal."""
    columns = {"variant": "variant", "items": "items/s", "percent": "% of ideal"}
    ideal = ideal_in_words(comparison.setting for comparison in machine.shown)
    text = f"Items a second of each variant. The upright mark is the ideal: {ideal}."
    title, value = "Throughput against the ideal", axis_of("from", "items a second")
    return machine.panel("throughput", title, text, columns=columns, rows=_throughputs, chart="bars", value=value)


def _throughputs(comparison: Comparison) -> Iterator[DataRow]:
    for row in comparison.rows:
        items, ideal = row.summary.items_per_s, row.ideal_items_per_s
        if row.percent is not None and items is not None and ideal is not None:
            yield {
                "variant": str(row.summary.case.variant),
                "from": 0.0,
                "to": items,
                "items": float(f"{items:.4g}"),
                "ideal": ideal,
                "percent": round(row.percent, 1),
                "label": f"{number(row.percent)} %",
                "end": ideal if _NEAR_IDEAL_PERCENT < row.percent < 100 else items,
                "room": LABEL_ROOM * max(items, ideal),
            }


def throughput(machine: MachineResults) -> Panel | None:
    """Items a second by number of devices. The page's first setting comes first; the names lack the axes of all."""
    rows = {key: rows_of_key for key, every in _scalings(machine).items() if (rows_of_key := _on_several_counts(every))}
    if not rows:
        return None
    main = [] if machine.main is None else [_strong(machine.main.setting), _weak(machine.main.setting)]
    first = next((key for key in main if key in rows), next(iter(rows)))
    ideal = ideal_in_words((comparison.setting for comparison in machine.compared.comparisons), of_scaling=True)
    text = (
        f"Items a second by number of devices, with 95 % intervals. The dashed line is the ideal: {ideal}. "
        "Strong scaling keeps the global batch, weak scaling the items of each device."
    )
    columns = {"variant": "variant", "devices": "devices", "shown": "items a second", "percent": "% of ideal"}
    x = {"field": "devices", "type": "ordinal", "title": "devices", "axis": {"labelAngle": 0}}
    spec = drawn("lines", columns, x=x, value=axis_of("items", "items a second"), colour=machine.colour(legend=True))
    title, labels = "Throughput by number of devices", apart({key: key for key in rows})
    return Panel("scaling", title, text, columns, rows, spec, "scaling", first, labels)


def _scalings(machine: MachineResults) -> Mapping[str, list[DataRow]]:
    scalings: dict[str, list[DataRow]] = {}
    for rung in (rung for ladder in ladders(machine.compared) for rung in ladder.rungs):
        scalings.setdefault(_strong(rung.summary.case), []).extend(_point(rung.summary, rung.ideal_items_per_s))
    for row in machine.compared.cases:
        if row.summary.case.batch % len(row.summary.case.devices) == 0:
            scalings.setdefault(_weak(row.summary.case), []).extend(_point(row.summary, row.ideal_items_per_s))
    return scalings


def _on_several_counts(rows: Sequence[DataRow]) -> list[DataRow]:
    """The rows of the variants that were measured on two numbers of devices or more."""
    counts: dict[object, set[object]] = {}
    for row in rows:
        counts.setdefault(row["variant"], set()).add(row["devices"])
    return [row for row in rows if len(counts[row["variant"]]) > 1]


def _strong(case: Case) -> str:
    kind = "lanes of one device" if are_shared(case.devices) else "devices"
    return f"strong: batch {case.batch} on all {kind}, {case.workload}, {circumstances(case)}"


def _weak(case: Case) -> str:
    kind = "lanes of one device" if are_shared(case.devices) else "devices"
    items = case.batch // len(case.devices)
    return f"weak: {items} items on each of the {kind}, {case.workload}, {circumstances(case)}"


def _point(summary: Summary, ideal_items_per_s: float | None) -> Iterator[DataRow]:
    """A variant on several devices, if it has times."""
    case, time = summary.case, summary.step_time_s
    if time is None or case.variant.name is VariantName.SINGLE:
        return
    slow, quick = (None if end is None else case.batch / end for end in (time.high, time.low))
    items = Estimate(case.batch / time.value, slow, quick)
    low, high = items.ends
    yield {
        "variant": str(case.variant),
        "devices": len(case.devices),
        "items": items.value,
        "low": low,
        "high": high,
        "ideal": ideal_items_per_s,
        "percent": None if ideal_items_per_s is None else round(100 * items.value / ideal_items_per_s, 1),
        "shown": items.text(),
    }


COMMON_ERROR = "Variants share a part of that error, so an order may be sure although lines overlap."
SINGLE_IS_A_SHARE = "single is one device with its share of the batch, not the whole batch."
_PROJECTED = "projected"
_MEASURED = "measured"


def projections(projected_machines: Sequence[ProjectedMachine], measured: Sequence[MachineResults]) -> Panel | None:
    """Measured times of the same workload and batch are drawn below each variant.

    Those of `single` are not, because its batch is a share here.
    """
    rows, labels = dict[str, list[DataRow]](), dict[str, str]()
    for projected in projected_machines:
        key = f"{projected.machine}|{projected.workload}|{projected.batch}|{projected.math}"
        rows[key] = list(_rows(projected, measured))
        labels[key] = f"{projected.machine}: {projected.workload}, batch {projected.batch}, {projected.math} math"
    every = [row for rows_of_key in rows.values() for row in rows_of_key]
    if not every:
        return None
    columns = {"variant": "variant", "kind": "time", "shown": "ms a step [interval]", "speed_up": "speed-up"}
    columns |= {"bound": "bound by", "reason": "reason"}
    colour = coloured("kind", [(_PROJECTED, series(4)), (_MEASURED, series(0))])
    height, value = row_step(row["row"] for row in every), axis_of("ms", "ms a step")
    spec = drawn("intervals", columns, mark=0, rows=rows_of("row"), value=value, colour=colour, height=height)
    text = (
        "Projected times are computed from a description of the machine, not measured on it. Their line is an "
        "interval: how far published steps are from their sums. "
        f"{COMMON_ERROR} {SINGLE_IS_A_SHARE}"
    )
    if any(row["kind"] == _MEASURED for row in every):
        text += " Measured times have their 95 % interval. They are of this page's machines, which may be other ones."
    return Panel("projections", "Projected step times", text, columns, rows, spec, "projection", labels=labels)


def _rows(machine: ProjectedMachine, measured: Sequence[MachineResults]) -> Iterator[DataRow]:
    summaries = [
        summary
        for results in measured
        for summary in results.summaries
        if (summary.case.workload, summary.case.batch) == (machine.workload, machine.batch)
        and summary.case.variant.name is not VariantName.SINGLE
    ]
    for variant in machine.variants:
        yield _projected(variant)
        for summary in summaries:
            if summary.step_time_s is not None and str(summary.case.variant) == variant.variant:
                yield _row(variant.variant, _MEASURED, summary.step_time_s)


def _projected(variant: ProjectedVariant) -> DataRow:
    time = variant.step_time_s
    return {
        **_row(variant.variant, _PROJECTED, None if time is None else time.estimate),
        "speed_up": "-" if variant.speed_up is None else number(variant.speed_up.mid),
        "bound": ", ".join(bound.part for bound in variant.bound_by) or "-",
        "reason": variant.reason or "",
    }


def _row(variant: str, kind: str, time: Estimate | None) -> DataRow:
    low, high = (None, None) if time is None else (end * 1e3 for end in time.ends)
    return {
        "row": variant if kind == _PROJECTED else f"{variant}, {kind}",
        "variant": variant,
        "kind": kind,
        "ms": None if time is None else time.value * 1e3,
        "label": "" if time is None else number(time.value * 1e3),
        "low": low,
        "high": high,
        "shown": "-" if time is None else time.text(1e-3),
        "speed_up": "-",
        "bound": "-",
        "reason": "",
    }
