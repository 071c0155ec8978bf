"""Charts of times: which variant is faster, how far from the ideal it is, and what a technique is worth."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from dpbench.analysis.compare import Comparison, Row
from dpbench.analysis.summary import Summary
from dpbench.cases.case import Case
from dpbench.cases.devices import are_shared
from dpbench.cases.parameters import value_text
from dpbench.cases.variants import VariantId, VariantName
from dpbench.report.page.drawing import (
    LABEL_ROOM,
    STEP_PX,
    bar_labels,
    bars,
    chart,
    devices_axis,
    intervals,
    layer,
    number_axis,
    row_step,
    rows_of,
)
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import Columns, DataRow, Panel
from dpbench.report.page.theme import BAD, GOOD, INK, MUTED, coloured, variant_colours
from dpbench.stats.rounds import Estimate, ratio_of_rounds
from dpbench.text.quantities import number

_MS = 1e-3
_CUT = " ▸"
_LARGEST = 5.0


def ratios(machine: MachineResults) -> Panel | None:
    """Return the times over the reference's; None if no variant has a ratio."""
    references = " or ".join(sorted({str(each.reference) for each in machine.shown if each.reference is not None}))
    text = (
        f"Each dot is a variant's time for a step over the time of {references}. The line is its 95 % interval. "
        "Left of 1 is faster. A variant whose line reaches 1 may be as fast."
    )
    return _forest(
        machine,
        "ratios",
        references,
        text,
        {each.setting.setting: _to_reference(each) for each in machine.shown},
    )


def ratios_to_fastest(machine: MachineResults) -> Panel | None:
    """Return the times over the fastest scheme's, with one device among them; None if there is one scheme."""
    rows = {each.setting.setting: own for each in machine.shown if len(own := _to_fastest(each)) > 1}
    text = (
        "The same times over those of the scheme with the shortest median, round by round. It answers whether that "
        "scheme is the fastest for sure: every other line is then right of 1. single and floor may be left of it: they "
        "are no schemes, but one device with the whole batch, and one chunk after another on it."
    )
    return _forest(machine, "fastest", "the fastest", text, rows)


def _forest(
    machine: MachineResults, name: str, over: str, text: str, rows: Mapping[str, Sequence[DataRow]]
) -> Panel | None:
    columns = {"variant": "variant", "time": "ms a step"}
    columns |= {"shown": f"time over {over} [95 % interval]", "rounds": "rounds"}
    colour = coloured("variant", variant_colours(machine.variants), legend=False)
    spec = _ratio_rows(machine, f"time over {over}", colour, columns)
    title = f"Time compared with {over}"
    return machine.panel(name, title, partial(_with_note, text), columns=columns, rows=rows, spec=spec)


def _ratio_rows(machine: MachineResults, title: str, colour: dict[str, object], columns: Columns) -> dict[str, object]:
    height = row_step(machine.variants, least=STEP_PX + 8)
    return intervals(number_axis("ratio", title, log=True), colour, columns, height, labels=True)


def _to_reference(comparison: Comparison) -> list[DataRow]:
    return _ratios([(row.summary, row.ratio) for row in comparison.rows if row.ratio is not None])


def _to_fastest(comparison: Comparison) -> list[DataRow]:
    winner = comparison.winner
    if winner is None:
        return []
    best = winner.best
    timed = [row.summary for row in comparison.rows if row.summary.step_times_s]
    over = [(each, ratio_of_rounds(each.step_times_s, best.step_times_s)) for each in timed if each is not best]
    both = [(best, Estimate(1.0, None, None)), *over]
    return _ratios(sorted(both, key=lambda pair: pair[1].value))


def _ratios(found: Sequence[tuple[Summary, Estimate]]) -> list[DataRow]:
    drawn = ratio_fields([ratio for _, ratio in found])
    return [{**_ratio(summary, ratio), **fields} for (summary, ratio), fields in zip(found, drawn, strict=True)]


def _ratio(summary: Summary, ratio: Estimate) -> DataRow:
    assert summary.step_time_s is not None
    return {
        "variant": str(summary.case.variant),
        "shown": ratio.text(),
        "time": summary.step_time_s.text(_MS),
        "rounds": f"{summary.rounds_ok}/{summary.rounds}",
    }


def ratio_fields(ratios: Sequence[Estimate]) -> list[DataRow]:
    """Return the fields of the rows that the chart draws. Without an interval the ends are the value.

    A ratio of more than `_LARGEST` medians has no line, and stands at the end of the others'. One of at most 1 is never
    cut, because the chart reaches its mark at 1 in any case.
    """
    most = max(_LARGEST * median(ratio.value for ratio in ratios), 1.0) if ratios else 0.0
    end = max((ratio.high or ratio.value for ratio in ratios if ratio.value <= most), default=0.0)
    return [_drawn(ratio) if ratio.value <= most else _cut(ratio, end) for ratio in ratios]


def _with_note(text: str, rows: Iterable[DataRow]) -> str:
    """Return the text, with a sentence on the ratios beyond the chart if there are any."""
    is_cut = any(str(row["label"]).endswith(_CUT) for row in rows)
    return f"{text} A dot with ▸ is beyond the chart." if is_cut else text


def _drawn(ratio: Estimate) -> DataRow:
    low, high = (ratio.value if end is None else end for end in (ratio.low, ratio.high))
    return {"ratio": ratio.value, "low": low, "high": high, "label": number(ratio.value)}


def _cut(ratio: Estimate, end: float) -> DataRow:
    return {"ratio": end, "low": end, "high": end, "label": f"{number(ratio.value)}{_CUT}"}


_SLOWER, _FASTER, _SAME = "slower than tuned", "faster than tuned", "not decided"


def ablation(machine: MachineResults) -> Panel | None:
    """Return tuned with one technique changed, over tuned; None if tuned or all of its changes have no times."""
    colour = coloured("verdict", [(_SLOWER, BAD), (_SAME, MUTED), (_FASTER, GOOD)])
    columns = {"variant": "variant", "what": "is", "shown": "time over tuned [95 % interval]", "verdict": "verdict"}
    text = (
        "Each row is tuned with one technique changed. Right of 1 the change costs time, so tuned's own choice is "
        "worth that much. A line that reaches 1 decides nothing."
    )
    spec = _ratio_rows(machine, "time over that of tuned", colour, columns)
    title = "What each technique is worth"
    return machine.panel("ablation", title, partial(_with_note, text), columns=columns, rows=_changes, spec=spec)


def _changes(comparison: Comparison) -> list[DataRow]:
    timed = [row.summary for row in comparison.rows if row.summary.step_times_s]
    tuned = next((each for each in timed if str(each.case.variant) == VariantName.TUNED), None)
    if tuned is None:
        return []
    changed = [each for each in timed if each is not tuned and each.case.variant.name is VariantName.TUNED]
    ratios = [(each.case.variant, ratio_of_rounds(each.step_times_s, tuned.step_times_s)) for each in changed]
    ratios = sorted(ratios, key=lambda pair: -pair[1].value)
    drawn = ratio_fields([ratio for _, ratio in ratios])
    return [
        {
            "variant": str(variant),
            "what": _what(variant),
            **fields,
            "shown": ratio.text(),
            "verdict": _verdict(ratio),
        }
        for (variant, ratio), fields in zip(ratios, drawn, strict=True)
    ]


def _what(variant: VariantId) -> str:
    """What the variant changes, such as ``send tensors together in buckets: false``."""
    known = variant.name.parameters
    return "; ".join(
        f"{known[key].sentence if key in known else key}: {value_text(value)}" for key, value in variant.values.items()
    )


def _verdict(ratio: Estimate) -> str:
    if ratio.is_above_one:
        return _SLOWER
    return _FASTER if ratio.high is not None and ratio.high < 1 else _SAME


_LIMIT = "one device's throughput with its share, times the number of devices"
_SINGLE = "one device's throughput with the whole batch, because these lanes share one device"
_NEAR_IDEAL_PERCENT = 85
"""From here on the mark of the ideal would run through the label, so the label stands behind the mark."""


def throughput_here(machine: MachineResults) -> Panel | None:
    """Return items a second by variant, with a mark at the ideal; None if no variant has a percentage of it."""
    columns = {"variant": "variant", "items": "items/s", "percent": "% of ideal"}
    tick = layer("tick", {"thickness": 3, "color": INK}, y=rows_of(), x="ideal")
    colour = coloured("variant", variant_colours(machine.variants), legend=False)
    x, height = number_axis("items", "items a second"), row_step(machine.variants)
    spec = bars(x, colour, columns, height, tick, *bar_labels("label_at"))
    shared = sorted({are_shared(each.setting.devices) for each in machine.shown})
    ideal = "; ".join(_SINGLE if each else _LIMIT for each in shared)
    text = f"Items a second of each variant. The upright mark is the ideal: {ideal}."
    return machine.panel(
        "throughput", "Throughput against the ideal", text, columns=columns, rows=_throughputs, spec=spec
    )


def _throughputs(comparison: Comparison) -> Iterator[DataRow]:
    for row in comparison.rows:
        items = row.summary.items_per_s
        percent = row.percent
        if percent is not None and items is not None:
            yield {
                "variant": str(row.summary.case.variant),
                "items": float(f"{items:.4g}"),
                "ideal": items / (percent / 100),
                "percent": round(percent, 1),
                "label": f"{number(percent)} %",
                "label_at": items / (percent / 100) if _NEAR_IDEAL_PERCENT < percent < 100 else items,
                "room": LABEL_ROOM * max(items, items / (percent / 100)),
            }


@dataclass(frozen=True)
class _Point:
    """A variant on some devices. `ideal` is the throughput at 100 %, `efficiency` the percentage of it."""

    row: Row
    setting: Case
    ideal: float | None
    efficiency: float | None

    @property
    def devices(self) -> int:
        return len(self.setting.devices)


def throughput(machine: MachineResults) -> Panel | None:
    """Return items a second by number of devices; None if no scaling has two numbers of devices."""
    columns = {"variant": "variant", "devices": "devices", "shown": "items a second"}
    x, colour = devices_axis(), coloured("variant", variant_colours(machine.variants))
    low = {"field": "low", "type": "quantitative", "title": "items a second"}
    ideal = {"field": "ideal", "type": "quantitative", "aggregate": "max"}
    y = number_axis("items", "items a second")
    spec = chart(
        layer("line", {"strokeDash": [5, 4], "color": MUTED}, x=x, y=ideal),
        layer("rule", {"strokeWidth": 2}, x=x, y=low, y2="high", color=colour),
        layer("line", {"point": True}, x=x, y=y, color=colour, columns=columns | {"percent": "% of ideal"}),
        height=280,
    )
    text = (
        f"Items a second by number of devices, with 95 % intervals. The dashed line is the ideal: {_ideal_of(machine)}."
    )
    panel = Panel("scaling", "Throughput by number of devices", text, columns, {}, spec, "scaling")
    return _with_scalings(panel, machine, _scalings(machine))


def efficiency(machine: MachineResults) -> Panel | None:
    """Return the percentage of the ideal by number of devices; None without one."""
    known = {
        key: [point for point in points if point.efficiency is not None] for key, points in _scalings(machine).items()
    }
    scalings = {key: own for key, points in known.items() if (own := _on_several_counts(points))}
    columns = {"variant": "variant", "devices": "devices", "percent": "% of ideal"}
    x, colour = devices_axis(), coloured("variant", variant_colours(machine.variants))
    y = number_axis("percent", "% of ideal")
    spec = chart(
        layer("rule", {"strokeDash": [5, 4], "color": MUTED}, y={"datum": 100}),
        layer("line", {"point": True}, x=x, y=y, color=colour, columns=columns),
        height=220,
    )
    text = (
        f"Throughput as a percentage of the ideal, {_ideal_of(machine)}. Strong scaling keeps the global batch, weak "
        "scaling the items of each device."
    )
    panel = Panel("efficiency", "Scaling efficiency", text, columns, {}, spec, "scaling")
    return _with_scalings(panel, machine, scalings)


def _with_scalings(panel: Panel, machine: MachineResults, scalings: Mapping[str, Sequence[_Point]]) -> Panel | None:
    """Return the panel with these rows. The page's first setting comes first; the names lack the axes of all."""
    if not scalings:
        return None
    keys = () if machine.main is None else _keys(machine.main.setting)
    first = next((key for key in keys if key in scalings), next(iter(scalings)))
    parts = {key: key.split(", ") for key in scalings}
    common = set.intersection(*map(set, parts.values())) if len(parts) > 1 else set()
    labels = {key: ", ".join(part for part in each if part not in common) for key, each in parts.items()}
    rows = {key: [_point_row(point) for point in points] for key, points in scalings.items()}
    return replace(panel, rows=rows, first=first, labels=labels)


def _scalings(machine: MachineResults) -> dict[str, list[_Point]]:
    """Return the points of each strong and weak scaling that has two numbers of devices."""
    groups: dict[str, list[_Point]] = {}
    for comparison in machine.compared.comparisons:
        for key in _keys(comparison.setting):
            groups.setdefault(key, []).extend(_points(comparison, is_strong="strong" in key))
    return {key: own for key, points in groups.items() if (own := _on_several_counts(points))}


def _on_several_counts(points: list[_Point]) -> list[_Point]:
    """Return the points of the variants that were measured on two numbers of devices or more."""
    counts: dict[str, set[int]] = {}
    for point in points:
        counts.setdefault(point.row.summary.case.variant, set()).add(point.devices)
    return [each for each in points if len(counts[each.row.summary.case.variant]) > 1]


def _keys(case: Case) -> Iterator[str]:
    axes = f"{case.workload}, {case.mode}, {case.dtype}, {case.data} data, {case.threads} threads, seed {case.seed}"
    steps = "" if case.steps_per_sample == 1 else f", {case.steps_per_sample} steps per sample"
    kind = "lanes of one device" if are_shared(case.devices) else "devices"
    yield f"strong: batch {case.batch} on all {kind}, {axes}{steps}"
    if case.batch % len(case.devices) == 0:
        yield f"weak: {case.batch // len(case.devices)} items on each of the {kind}, {axes}{steps}"


def _points(comparison: Comparison, *, is_strong: bool) -> Iterator[_Point]:
    single = next((row for row in comparison.rows if row.summary.case.variant.name is VariantName.SINGLE), None)
    alone = None if single is None else single.summary.items_per_s
    for row in comparison.rows:
        if row is single or row.summary.items_per_s is None:
            continue
        if row.percent_of_single is not None:
            ideal = alone
        elif is_strong:
            ideal = None if alone is None else alone * len(comparison.setting.devices)
        else:
            percent = row.percent_of_limit
            ideal = None if percent is None else row.summary.items_per_s / (percent / 100)
        yield _Point(row, comparison.setting, ideal, None if ideal is None else 100 * row.summary.items_per_s / ideal)


def _point_row(point: _Point) -> DataRow:
    found = point.row.summary
    assert found.step_time_s is not None
    time, batch = found.step_time_s, found.case.batch
    low, high = (batch / (time.value if end is None else end) for end in (time.high, time.low))
    items = batch / time.value
    return {
        "variant": str(found.case.variant),
        "devices": point.devices,
        "items": items,
        "low": low,
        "high": high,
        "ideal": point.ideal,
        "percent": None if point.efficiency is None else round(point.efficiency, 1),
        "shown": f"{number(items)} [{number(low)}, {number(high)}]",
    }


def _ideal_of(machine: MachineResults) -> str:
    if any(are_shared(comparison.setting.devices) for comparison in machine.compared.comparisons):
        return "one device's throughput with the whole batch, because these lanes share one device"
    return "one device's throughput times the number of devices"
