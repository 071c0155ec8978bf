"""Comparisons for a terminal: the answer, the times, and with details the phases, devices and the ladder."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.report.device_table import DeviceRows, devices_legend, devices_parts
from dpbench.report.headline import headline, place
from dpbench.report.ladder import Ladder, ladders
from dpbench.report.ladder_table import LADDER_LEGEND, ladder_parts
from dpbench.report.missing import notes_on_missing
from dpbench.report.units import estimate, number, time_unit
from dpbench.report.wide_table import NONE, Bar, Column, WideTable, folded
from dpbench.results.compare import Comparison, Comparisons, Row
from dpbench.results.phase_parts import PARTS_OF
from dpbench.results.phase_summary import PhaseSummary
from dpbench.results.readings import OverRounds
from dpbench.results.record import Outcome
from dpbench.results.summary import Summary
from dpbench.stats.least_samples import LEAST_SAMPLES, least_seconds
from dpbench.sweep.case import Case
from dpbench.sweep.devices import are_shared, format_devices
from dpbench.sweep.names import Data
from dpbench.sweep.outside import one_line

_NONE = "-"
_LEGEND = "time: median over rounds of the round's median step [95 % interval over rounds]; a ratio below 1 is faster. "
_STEPS_LEGEND = (
    "steps per sample: that many steps ran without a wait for the devices between them; "
    "a time is a sample's divided by its steps. "
)
_PERCENT_OF = {
    "limit": "% of limit: one device's time for its share alone, over the time; no scheme exceeds 100.",
    "single": "% of single: one device's time for the whole batch, over the time; may exceed 100.",
}


def load_warning(busy_cores: float, cores: int) -> str:
    return (
        f"Other processes kept {busy_cores:.1f} of {cores} cores busy meanwhile, so times are longer and orders less "
        "sure: stop them and measure again."
    )


def comparisons_text(found: Comparisons, *, with_details: bool = False, warning: str | None = None) -> Group:
    """Return for each setting the answer, the times, and the reasons for missing numbers; a legend at the end.

    A `warning` comes behind the first answer. With details, the tables of devices and phases and the ladders follow,
    each with its legend.
    """
    parts: list[RenderableType] = []
    for index, comparison in enumerate(found.comparisons):
        below = list(notes(comparison))
        parts += _answer(comparison)
        parts += [Text(warning, style="yellow")] if warning is not None and index == 0 else []
        if any(row.summary.step_times_s for row in comparison.rows):
            parts += [Text(), times_table(comparison)]
        parts += map(Text, [*below, ""] if below else [])
    parts += [
        Text(f"single-device baseline {_setting(s.case)}: {_why(s)}")
        for s in found.single_device_baselines
        if s.reason is not None
    ]
    for name, values in found.differences.items():
        parts.append(Text(f"records of different environments: {name} is {' / '.join(map(str, values))}"))
    climbed = ladders(found) if with_details else ()
    of_limit = ["limit" for each in climbed for rung in each.rungs if rung.percent_of_limit is not None]
    percents = dict.fromkeys([*map(_percent_of, found.comparisons), *of_limit])
    several = any(comparison.setting.steps_per_sample > 1 for comparison in found.comparisons)
    legend = _LEGEND + (_STEPS_LEGEND if several else "") + " ".join(_PERCENT_OF[name] for name in percents)
    parts.append(Text(legend, style="dim"))
    return Group(*parts, *(_all_details(found, climbed) if with_details else ()))


def _answer(comparison: Comparison) -> Iterator[Text]:
    """Yield what to use in a setting; then how sure that is, how far from the limit, and what to do."""
    said = headline(comparison)
    yield Text.assemble(f"{place(said.setting)}: ", (said.answer, "bold"))
    if len(said.sentences) > 1:
        yield Text(" ".join(said.sentences[1:]))


def _all_details(found: Comparisons, climbed: Sequence[Ladder]) -> Iterator[RenderableType]:
    legends: dict[str, None] = {}
    rows: list[DeviceRows] = []
    for comparison in found.comparisons:
        devices, phases = list(devices_parts(_devices(comparison))), list(_phases(comparison))
        if len(found.comparisons) > 1 and (devices or phases):
            yield Text(f"\n{place(comparison.setting)}", style="bold")
        yield from (*devices, *phases)
        rows += _devices(comparison) if devices else []
        legends |= dict.fromkeys([PHASES_LEGEND] if phases else [])
    yield from ladder_parts(climbed)
    legends |= dict.fromkeys([LADDER_LEGEND] if climbed else [])
    for legend in (*([devices_legend(rows)] if rows else []), *legends):
        yield Text(legend, style="dim")


def details(comparison: Comparison) -> Iterator[WideTable | Text]:
    """Yield the tables of devices and of phases, each with its notes."""
    yield from devices_parts(_devices(comparison))
    yield from _phases(comparison)


def _devices(comparison: Comparison) -> list[DeviceRows]:
    summaries = [row.summary for row in comparison.rows]
    return [DeviceRows(each.case.variant, each.devices, each.peak_rss_bytes) for each in summaries]


def _phases(comparison: Comparison) -> Iterator[WideTable | Text]:
    summaries = [row.summary for row in comparison.rows]
    return phases_parts({each.case.variant: each.phases for each in summaries if each.phases is not None})


def times_table(comparison: Comparison) -> WideTable:
    """Return the times of a setting: a row for each case that has times, the fastest first."""
    timed = [row for row in comparison.rows if row.summary.step_time_s is not None]
    rows = sorted(timed, key=lambda row: row.summary.step_time_s.value if row.summary.step_time_s else 0.0)
    times_s = [row.summary.step_time_s.value for row in rows if row.summary.step_time_s is not None]
    unit_s, unit = time_unit(times_s)
    ratio = "ratio" if comparison.reference is None else f"ratio to {comparison.reference}"
    headers = [f"time, {unit}", ratio, f"% of\n{_percent_of(comparison)}", "items/s"]
    if comparison.setting.data is not Data.RANDOM:
        headers.append("loss")
    cells = [list(_cells(row, unit_s)) for row in rows]
    taken = max((row.summary.rounds_ok for row in rows), default=0)
    return WideTable(
        f"{_setting(comparison.setting)}; {taken} round{'s' * (taken != 1)}",
        [Column("variant", [str(row.summary.case.variant) for row in rows])],
        [Column(header, [row[column] for row in cells]) for column, header in enumerate(headers)],
        [_bar(row, max(times_s, default=0.0)) for row in rows],
        "relative\ntime",
    )


def _bar(row: Row, longest_s: float) -> Bar:
    """Return the time as a share of the longest: green if surely faster than the reference, red if surely slower."""
    time, ratio = row.summary.step_time_s, row.ratio
    if time is None:
        return Bar(None)
    if ratio is None or ratio.times.low is None or ratio.times.high is None:
        return Bar(time.value / longest_s)
    return Bar(time.value / longest_s, "green" if ratio.times.high < 1 else "red" if ratio.times.low > 1 else "")


def _loss(summary: Summary) -> str:
    return _NONE if summary.loss is None else f"{number(summary.loss.first)} to {number(summary.loss.last)}"


def _cells(row: Row, unit_s: float) -> Iterator[str]:
    summary = row.summary
    percent = row.percent_of_limit if row.percent_of_single is None else row.percent_of_single
    time = _NONE if summary.step_time_s is None else estimate(summary.step_time_s, unit_s)
    yield f"{time} *" if summary.thin_rounds else time
    yield _NONE if row.ratio is None else estimate(row.ratio.times)
    yield _NONE if percent is None else number(percent)
    yield _NONE if summary.items_per_s is None else number(summary.items_per_s)
    yield _loss(summary)


def notes(comparison: Comparison) -> Iterator[str]:
    """Yield a line for each missing number, and for the marks of the table."""
    for row in comparison.rows:
        if row.summary.reason is not None:
            yield f"{row.summary.case.variant}: {_why(row.summary)}"
    if any(row.summary.rounds_ok == 1 for row in comparison.rows):
        yield "one round has no interval, because the interval is over rounds"
    if thin := [row.summary.case for row in comparison.rows if row.summary.thin_rounds]:
        least_s = max(least_seconds(case.devices) for case in thin)
        yield f"*: a round has fewer than {LEAST_SAMPLES} samples or {least_s:g} s of them, so the row is not ranked"


def _why(summary: Summary) -> str:
    """Return the reason on one line. A crashed child's last output may hold any character."""
    text = one_line(str(summary.reason))
    return text if summary.outcome is Outcome.OK else f"{_outcome(summary)}: {text}"


def _outcome(summary: Summary) -> str:
    return summary.outcome.replace("_", " ")


def _percent_of(comparison: Comparison) -> str:
    return "single" if are_shared(comparison.setting.lanes_of_a_machine) else "limit"


def _setting(case: Case) -> str:
    machines = "" if case.machines == 1 else f" of {case.machines} machines"
    return (
        f"{case.workload}, batch {case.batch} on {format_devices(case.devices)}{machines}, {case.mode}, {case.dtype}, "
        f"{case.data} data, {case.threads} threads, seed {case.seed}"
        f"{'' if case.steps_per_sample == 1 else f', {case.steps_per_sample} steps per sample'}"
    )


PHASES_LEGEND = (
    "phases: medians over rounds, of extra steps after the timed ones; indented parts belong to the phase above them. "
    "Skew: the slowest rank's time minus the fastest's. Lag: the slowest rank's median time minus the fastest's. "
    "Collectives: from start to end in this rank, in profiled steps; hidden while an operator of the rank runs."
)
_ROWS = {
    name: f"{'' if name == whole else '  '}{name}"
    for whole, parts in {**PARTS_OF, "collectives": ("hidden",)}.items()
    for name in (whole, *parts)
}


def phases_parts(found: Mapping[str, PhaseSummary]) -> Iterator[WideTable | Text]:
    """Yield the table and its notes, or nothing if no variant has a time. `found` is by variant.

    A variant with several ranks has a column for rank 0 and one for the slowest rank.
    """
    found = dict(_ranks_apart(found))
    unknown = dict.fromkeys(name for each in found.values() for name in each.phases_s if name not in _ROWS)
    rows = {label: _row(name, found) for name, label in {**_ROWS, **{name: one_line(name) for name in unknown}}.items()}
    rows["skew"] = {name: each.skew_s for name, each in found.items()}
    rows["lag"] = {name: _largest_lag(each) for name, each in found.items()}
    notes = [*_disagreements(found), *_notes(rows)]
    rows = {label: row for label, row in rows.items() if any(_value(each) is not None for each in row.values())}
    if not rows:
        return
    unit_s, unit = _unit(found)
    columns = [
        Column(folded(name), [_cell(row[name], unit_s, found[name], label) for label, row in rows.items()])
        for name in found
    ]
    yield WideTable(f"phases, {unit}", [Column("phase", list(rows))], columns)
    yield from map(Text, [*notes, ""] if notes else [])


def _ranks_apart(found: Mapping[str, PhaseSummary]) -> Iterator[tuple[str, PhaseSummary]]:
    for name, each in found.items():
        slowest_s = each.slowest_phases_s if each.slowest_rank else None
        yield name if slowest_s is None else f"{name} rank 0", each
        if slowest_s is not None:
            slowest = PhaseSummary(slowest_s, skew_s=None, rank_lag_s=(), longest_step_s=each.longest_step_s)
            yield f"{name} rank {each.slowest_rank}", slowest


def _disagreements(found: Mapping[str, PhaseSummary]) -> Iterator[str]:
    for name, each in found.items():
        if each.disagreeing:
            longer = " and ".join(each.disagreeing)
            yield f"{name}: its phases disagree with the step (≠): {longer} took longer than the whole step"


def _notes(rows: Mapping[str, Mapping[str, OverRounds | None]]) -> Iterator[str]:
    return notes_on_missing(
        (label.strip(), (variant, ""), figure)
        for label, row in rows.items()
        for variant, figure in row.items()
        if figure is not None
    )


def _row(name: str, found: Mapping[str, PhaseSummary]) -> dict[str, OverRounds | None]:
    return {variant: each.phases_s.get(name) for variant, each in found.items()}


def _largest_lag(found: PhaseSummary) -> OverRounds | None:
    return None if found.slowest_rank is None else found.rank_lag_s[found.slowest_rank]


def _unit(found: Mapping[str, PhaseSummary]) -> tuple[float, str]:
    """Return the unit for the longest phase of the fastest variant."""
    longest = [max((_value(each) or 0.0 for each in one.phases_s.values()), default=0.0) for one in found.values()]
    return time_unit([value for value in longest if value])


def _cell(figure: OverRounds | None, unit_s: float, found: PhaseSummary, label: str) -> str:
    value = _value(figure)
    if value is None:
        return NONE
    mark = f" (rank {found.slowest_rank})" if label == "lag" else " ≠" if label in found.disagreeing else ""
    return f"{number(value / unit_s)}{mark}"


def _value(figure: OverRounds | None) -> float | None:
    return None if figure is None else figure.value
