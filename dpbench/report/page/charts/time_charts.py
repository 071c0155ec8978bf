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
    MUTED,
    STEP_PX,
    Spec,
    coloured,
    drawn,
    row_step,
    rows_of,
    series,
)
from dpbench.report.page.inputs import ProjectedMachine, ProjectedShare, ProjectedVariant
from dpbench.report.page.machines import MachineResults, apart
from dpbench.report.page.parts import Columns, DataRow, Panel
from dpbench.text.quantities import number

_MS = 1e-3
_CUT = " ▸"
_LARGEST = 5.0


def ratios(machine: MachineResults) -> Panel | None:
    """Times over the reference's."""
    known = {str(comparison.reference) for comparison in machine.shown if comparison.reference is not None}
    references = " or ".join(sorted(known))
    text = (
        f"Each dot is a variant's time for a step over the time of {references}. The line is its 95 % interval. "
        "Left of 1 is faster. A variant whose line reaches 1 may be as fast."
    )

    def rows(comparison: Comparison) -> list[DataRow]:
        return _ratios([(row.summary, row.ratio) for row in comparison.rows if row.ratio is not None])

    return _compared(machine, "ratios", references, text, rows)


def ratios_to_fastest(machine: MachineResults) -> Panel | None:
    """Times over the fastest scheme's, with one device among them."""
    text = (
        "The same times over those of the scheme with the shortest median, round by round. It answers whether that "
        "scheme is the fastest for sure: every other line is then right of 1. single and floor may be left of it: they "
        "are no schemes, but one device with the whole batch, and one chunk after another on it."
    )
    return _compared(machine, "fastest", "the fastest", text, _to_fastest)


def _to_fastest(comparison: Comparison) -> list[DataRow]:
    winner, timed = comparison.winner, [row.summary for row in comparison.fastest_first]
    if winner is None or len(timed) < 2:
        return []
    return _ratios([(summary, summary.ratio_to(winner.best)) for summary in timed])


_Rows = Callable[[Comparison], list[DataRow]]


def _compared(machine: MachineResults, name: str, over: str, text: str, rows: _Rows) -> Panel | None:
    columns = {"variant": "variant", "time": "ms a step"}
    columns |= {"shown": f"time over {over} [95 % interval]", "rounds": "rounds"}
    title = f"Time compared with {over}"
    axis, colour = f"time over {over}", machine.colour()
    return _forest(machine, name, title, text, axis=axis, columns=columns, rows=rows, colour=colour)


def _forest(
    machine: MachineResults, name: str, title: str, text: str, *, axis: str, columns: Columns, rows: _Rows, colour: Spec
) -> Panel | None:
    """Ratios in rows. The text has a sentence on those beyond the chart, if there are any."""

    def whole_text(rows: Sequence[DataRow]) -> str:
        is_cut = any(str(row["label"]).endswith(_CUT) for row in rows)
        return f"{text} A dot with ▸ is beyond the chart." if is_cut else text

    look = {"axis": axis, "colour": colour, "height": row_step(machine.variants, least=STEP_PX + 8)}
    return machine.panel(name, title, whole_text, columns=columns, rows=rows, chart="intervals", **look)


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
    title, colour = "What each technique is worth", coloured("verdict", list(_VERDICTS.values()))
    axis = "time over that of tuned"
    return _forest(machine, "ablation", title, text, axis=axis, columns=columns, rows=_changes, colour=colour)


def _changes(comparison: Comparison) -> list[DataRow]:
    timed = [row.summary for row in comparison.fastest_first if row.summary.case.variant.name is VariantName.TUNED]
    tuned = next((summary for summary in timed if str(summary.case.variant) == VariantName.TUNED), None)
    pairs = [(summary, summary.ratio_to(tuned)) for summary in reversed(timed) if summary is not tuned] if tuned else []
    more = [{"what": _what(summary.case.variant), "verdict": _VERDICTS[ratio.verdict][0]} for summary, ratio in pairs]
    return [{**row, **own} for row, own in zip(_ratios(pairs), more, strict=True)]


def _what(variant: VariantId) -> str:
    """What the variant changes, such as ``send tensors together in buckets: false``."""
    known = variant.name.parameters
    return "; ".join(
        f"{known[key].sentence if key in known else key}: {value_text(value)}" for key, value in variant.values.items()
    )


_NEAR_IDEAL_PERCENT = 85
"""From here on the mark of the ideal would run through the label, so the label stands behind the mark."""


def throughput_here(machine: MachineResults) -> Panel | None:
    """Items a second by variant, with a mark at the ideal."""
    columns = {"variant": "variant", "items": "items/s", "percent": "% of ideal"}
    ideal = ideal_in_words(comparison.setting for comparison in machine.shown)
    text = f"Items a second of each variant. The upright mark is the ideal: {ideal}."
    title = "Throughput against the ideal"
    return machine.panel("throughput", title, text, columns=columns, rows=_throughputs)


def _throughputs(comparison: Comparison) -> Iterator[DataRow]:
    for row in comparison.rows:
        items, ideal = row.summary.items_per_s, row.ideal_items_per_s
        if row.percent is not None and items is not None and ideal is not None:
            yield {
                "variant": str(row.summary.case.variant),
                "items": float(f"{items:.4g}"),
                "ideal": ideal,
                "percent": round(row.percent, 1),
                "label": f"{number(row.percent)} %",
                "label_at": ideal if _NEAR_IDEAL_PERCENT < row.percent < 100 else items,
                "room": LABEL_ROOM * max(items, ideal),
            }


def throughput(machine: MachineResults) -> Panel | None:
    """Items a second by number of devices."""
    text = "Items a second by number of devices, with 95 % intervals. The dashed line is the ideal: {}."
    title, shown = "Throughput by number of devices", {"shown": "items a second", "percent": "% of ideal"}
    return _scaling(machine, "scaling", title, text, shown=shown, rows=_scalings(machine))


def efficiency(machine: MachineResults) -> Panel | None:
    """The percentage of the ideal by number of devices."""
    text = (
        "Throughput as a percentage of the ideal, {}. Strong scaling keeps the global batch, weak scaling the items of "
        "each device."
    )
    known = {key: [row for row in rows if row["percent"] is not None] for key, rows in _scalings(machine).items()}
    title, shown = "Scaling efficiency", {"percent": "% of ideal"}
    return _scaling(machine, "efficiency", title, text, shown=shown, rows=known)


def _scaling(
    machine: MachineResults, name: str, title: str, text: str, *, shown: Columns, rows: "_Scalings"
) -> Panel | None:
    """The page's first setting comes first; the names lack the axes of all."""
    rows = {key: own for key, every in rows.items() if (own := _on_several_counts(every))}
    if not rows:
        return None
    main = [] if machine.main is None else [_strong(machine.main.setting), _weak(machine.main.setting)]
    first = next((key for key in main if key in rows), next(iter(rows)))
    ideal = ideal_in_words((comparison.setting for comparison in machine.compared.comparisons), of_scaling=True)
    columns = {"variant": "variant", "devices": "devices", **shown}
    spec = drawn(name, columns, colour=machine.colour(legend=True))
    labels = apart({key: key for key in rows})
    return Panel(name, title, text.format(ideal), columns, rows, spec, "scaling", first, labels)


_Scalings = Mapping[str, list[DataRow]]


def _scalings(machine: MachineResults) -> _Scalings:
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


_LEAST_SHARE = 0.05
COMMON_ERROR = "Variants share a part of that error, so an order may be sure although lines overlap."
SINGLE_IS_A_SHARE = "single is one device with its share of the batch, not the whole batch."
_PROJECTED, _MEASURED = "projected", "measured"


def projections(projected_machines: Sequence[ProjectedMachine], measured: Sequence[MachineResults]) -> Panel | None:
    """Measured times of the same workload and batch are drawn below each variant.

    Those of `single` are not, because its batch is a share here.
    """
    rows, labels = dict[str, list[DataRow]](), dict[str, str]()
    for projected in projected_machines:
        key = f"{projected.machine}|{projected.workload}|{projected.batch}|{projected.math}"
        rows[key] = list(_rows(projected, measured))
        labels[key] = f"{projected.machine}: {projected.workload}, batch {projected.batch}, {projected.math} math"
    every = [row for own in rows.values() for row in own]
    if not every:
        return None
    columns = {"variant": "variant", "kind": "time", "shown": "ms a step [interval]", "speed_up": "speed-up"}
    columns |= {"bound": "bound by", "reason": "reason"}
    colour = coloured("kind", [(_PROJECTED, series(4)), (_MEASURED, series(0))])
    height = row_step(row["row"] for row in every)
    spec = drawn("projected", columns, rows=rows_of("row"), colour=colour, height=height)
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
    time, speed_up = variant.step_time_s, variant.speed_up
    bound = ", ".join([_bound(cause) for cause in variant.bound_by if cause.share >= _LEAST_SHARE][:3])
    estimate = None if time is None else time.estimate
    speed = "-" if speed_up is None else number(speed_up.mid)
    more = {"speed_up": speed, "bound": bound or "-", "reason": variant.reason or ""}
    return {**_row(variant.variant, _PROJECTED, estimate), **more}


def _bound(cause: ProjectedShare) -> str:
    """Older projections have several parts with shares."""
    return cause.part if cause.share == 1 else f"{cause.part} {cause.share:.0%}"


def _row(variant: str, kind: str, time: Estimate | None) -> DataRow:
    low, high = (None, None) if time is None else (end * 1e3 for end in time.ends)
    return {
        "row": variant if kind == _PROJECTED else f"{variant}, {kind}",
        "variant": variant,
        "kind": kind,
        "ms": None if time is None else time.value * 1e3,
        "low": low,
        "high": high,
        "shown": "-" if time is None else time.text(1e-3),
        "speed_up": "-",
        "bound": "-",
        "reason": "",
    }
