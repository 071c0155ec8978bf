"""How speed grows with the number of devices: throughput against the ideal line, and the efficiency of scaling."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import MUTED, chart, coloured, number_axis, tooltip, variant_colours
from dpbench.report.units import number
from dpbench.results.compare import Comparison, Row
from dpbench.sweep.case import Case
from dpbench.sweep.devices import are_shared
from dpbench.sweep.variants import VariantName

_HEIGHT = 280


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


def throughput(found: MachineResults) -> Panel | None:
    """Return items a second by number of devices; None if no scaling has two numbers of devices."""
    scalings = _scalings(found)
    if not scalings:
        return None
    y = number_axis("items", "items a second")
    x = {"field": "devices", "type": "ordinal", "title": "devices", "axis": {"labelAngle": 0}}
    colour = coloured("variant", variant_colours(found.variants))
    ends = {"y": {"field": "low", "type": "quantitative", "title": "items a second"}, "y2": {"field": "high"}}
    tip = tooltip(
        ("variant", "variant"), ("devices", "devices"), ("shown", "items a second"), ("percent", "% of ideal")
    )
    spec = chart(
        {
            "mark": {"type": "line", "strokeDash": [5, 4], "color": MUTED},
            "encoding": {"x": x, "y": {"field": "ideal", "type": "quantitative", "aggregate": "max"}},
        },
        {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": {"x": x, **ends, "color": colour}},
        {"mark": {"type": "line", "point": True}, "encoding": {"x": x, "y": y, "color": colour, "tooltip": tip}},
        height=_HEIGHT,
    )
    return Panel(
        "scaling",
        "Throughput by number of devices",
        f"Items a second by number of devices, with 95 % intervals. The dashed line is the ideal: {_ideal_of(found)}.",
        _columns("shown", "items a second"),
        {key: [_json(each) for each in points] for key, points in scalings.items()},
        spec,
        "scaling",
        _first(found, scalings),
        _labels(scalings),
    )


def efficiency(found: MachineResults) -> Panel | None:
    """Return the percentage of the ideal by number of devices; None without one."""
    known = {key: [each for each in points if each.efficiency is not None] for key, points in _scalings(found).items()}
    scalings = {key: own for key, points in known.items() if (own := _on_several_counts(points))}
    if not scalings:
        return None
    x = {"field": "devices", "type": "ordinal", "title": "devices", "axis": {"labelAngle": 0}}
    encoding = {
        "x": x,
        "y": number_axis("percent", "% of ideal"),
        "color": coloured("variant", variant_colours(found.variants)),
        "tooltip": tooltip(("variant", "variant"), ("devices", "devices"), ("percent", "% of ideal")),
    }
    spec = chart(
        {"mark": {"type": "rule", "strokeDash": [5, 4], "color": MUTED}, "encoding": {"y": {"datum": 100}}},
        {"mark": {"type": "line", "point": True}, "encoding": encoding},
        height=_HEIGHT - 60,
    )
    return Panel(
        "efficiency",
        "Scaling efficiency",
        f"Throughput as a percentage of the ideal, {_ideal_of(found)}. Strong scaling keeps the global batch, weak "
        "scaling the items of each device.",
        _columns("percent", "% of ideal"),
        {key: [_json(each) for each in points] for key, points in scalings.items()},
        spec,
        "scaling",
        _first(found, scalings),
        _labels(scalings),
    )


def _first(found: MachineResults, scalings: Mapping[str, object]) -> str:
    """Return the scaling that the page's first setting is of; the first of all if it is of none."""
    keys = () if found.main is None else _keys(found.main.setting)
    return next((key for key in keys if key in scalings), next(iter(scalings)))


def _scalings(found: MachineResults) -> dict[str, list[_Point]]:
    """Return the points of each strong and weak scaling that has two numbers of devices."""
    groups: dict[str, list[_Point]] = {}
    for comparison in found.compared.comparisons:
        for key in _keys(comparison.setting):
            groups.setdefault(key, []).extend(_points(comparison, is_strong="strong" in key))
    return {key: own for key, points in groups.items() if (own := _on_several_counts(points))}


def _on_several_counts(points: list[_Point]) -> list[_Point]:
    """Return the points of the variants that were measured on two numbers of devices or more."""
    counts: dict[str, set[int]] = {}
    for each in points:
        counts.setdefault(each.row.summary.case.variant, set()).add(each.devices)
    return [each for each in points if len(counts[each.row.summary.case.variant]) > 1]


def _keys(case: Case) -> Iterator[str]:
    axes = f"{case.workload}, {case.mode}, {case.dtype}, {case.data} data, {case.threads} threads, seed {case.seed}"
    steps = "" if case.steps_per_sample == 1 else f", {case.steps_per_sample} steps per sample"
    kind = "lanes of one device" if are_shared(case.devices) else "devices"
    yield f"strong: batch {case.batch} on all {kind}, {axes}{steps}"
    if case.batch % len(case.devices) == 0:
        yield f"weak: {case.batch // len(case.devices)} items on each of the {kind}, {axes}{steps}"


def _points(found: Comparison, *, is_strong: bool) -> Iterator[_Point]:
    single = next((row for row in found.rows if row.summary.case.variant.name is VariantName.SINGLE), None)
    alone = None if single is None else single.summary.items_per_s
    for row in found.rows:
        if row is single or row.summary.items_per_s is None:
            continue
        if row.percent_of_single is not None:
            ideal = alone
        elif is_strong:
            ideal = None if alone is None else alone * len(found.setting.devices)
        else:
            percent = row.percent_of_limit
            ideal = None if percent is None else row.summary.items_per_s / (percent / 100)
        yield _Point(row, found.setting, ideal, None if ideal is None else 100 * row.summary.items_per_s / ideal)


def _json(point: _Point) -> DataRow:
    found = point.row.summary
    assert found.step_time_s is not None
    time, batch = found.step_time_s, found.case.batch
    low, high = (time.value if end is None else end for end in (time.high, time.low))
    items = batch / time.value
    return {
        "variant": str(found.case.variant),
        "devices": point.devices,
        "items": items,
        "low": batch / low,
        "high": batch / high,
        "ideal": point.ideal,
        "percent": None if point.efficiency is None else round(point.efficiency, 1),
        "shown": f"{number(items)} [{number(batch / low)}, {number(batch / high)}]",
    }


def _columns(field: str, header: str) -> tuple[Shown, ...]:
    return Shown("variant", "variant"), Shown("devices", "devices"), Shown(field, header)


def _labels(scalings: dict[str, list[_Point]]) -> dict[str, str]:
    """Return the names without the axes that are the same in all."""
    parts = {key: key.split(", ") for key in scalings}
    common = set.intersection(*map(set, parts.values())) if len(parts) > 1 else set()
    return {key: ", ".join(part for part in each if part not in common) for key, each in parts.items()}


def _ideal_of(found: MachineResults) -> str:
    if any(are_shared(each.setting.devices) for each in found.compared.comparisons):
        return "one device's throughput with the whole batch, because these lanes share one device"
    return "one device's throughput times the number of devices"
