"""Comparisons as tables for a terminal."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.report.bars import Bar
from dpbench.report.device_table import DeviceRows, devices_legend, devices_parts
from dpbench.report.headline import headline, place
from dpbench.report.ladder import ladders
from dpbench.report.ladder_table import LADDER_LEGEND, ladder_parts
from dpbench.report.phase_table import PHASES_LEGEND, phases_parts
from dpbench.report.units import estimate, number, time_unit
from dpbench.report.wide_table import Column, WideTable
from dpbench.results.compare import Comparison, Comparisons, Row
from dpbench.results.record import Outcome
from dpbench.results.summary import Summary
from dpbench.sweep.case import Case
from dpbench.sweep.devices import are_shared, format_devices
from dpbench.sweep.names import Data
from dpbench.sweep.outside import one_line

_NONE = "-"
_LEGEND = (
    "time: median over rounds of the round's median step, with its 95 % interval over rounds. "
    "ratio: time over the reference's time; below 1 is faster. "
)
_STEPS_LEGEND = (
    "steps per sample: that many steps ran without a wait for the devices between them; "
    "a time is a sample's divided by its steps. "
)
_PERCENT_OF = {
    "limit": "% of limit: one device's time for its share alone, over the time; no scheme exceeds 100.",
    "single": "% of single: one device's time for the whole batch, over the time; may exceed 100.",
}


def comparisons_text(found: Comparisons) -> Group:
    """Return the tables of each setting: times, devices, phases. Then the ladders, each over several settings.

    Below each setting are reasons for missing numbers, and at the end a legend.
    """
    parts: list[RenderableType] = []
    legends: dict[str, None] = {}
    rows: list[DeviceRows] = []
    for comparison in found.comparisons:
        devices, phases = list(devices_parts(_devices(comparison))), list(_phases(comparison))
        reasons = list(notes(comparison))
        parts += [times_table(comparison), *map(Text, [*reasons, ""] if reasons else []), *devices, *phases]
        rows += _devices(comparison) if devices else []
        legends |= dict.fromkeys([PHASES_LEGEND] if phases else [])
    parts += [
        Text(f"single-device baseline {_setting(s.case)}: {_why(s)}")
        for s in found.single_device_baselines
        if s.reason is not None
    ]
    climbed = ladders(found)
    parts += ladder_parts(climbed)
    legends |= dict.fromkeys([LADDER_LEGEND] if climbed else [])
    for name, values in found.differences.items():
        parts.append(Text(f"records of different environments: {name} is {' / '.join(map(str, values))}"))
    of_limit = ["limit" for each in climbed for rung in each.rungs if rung.percent_of_limit is not None]
    percents = dict.fromkeys([*map(_percent_of, found.comparisons), *of_limit])
    several = any(comparison.setting.steps_per_sample > 1 for comparison in found.comparisons)
    legend = _LEGEND + (_STEPS_LEGEND if several else "") + " ".join(_PERCENT_OF[name] for name in percents)
    below = [Text(text, style="dim") for text in (legend, *([devices_legend(rows)] if rows else []), *legends)]
    return Group(*parts, *below)


def headlines_text(found: Comparisons) -> Group:
    """Return a few sentences on each setting, to be shown below all tables."""
    return Group(Text(), *map(_headline, found.comparisons))


def _headline(found: Comparison) -> Text:
    """What to use in a setting, how sure that is, how far from the limit, and what to do."""
    said = headline(found)
    return Text.assemble(
        f"{place(said.setting)}: ", (said.answer, "bold"), *[f" {each}" for each in said.sentences[1:]]
    )


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
    """Return the times of a setting: a row for each variant."""
    times_s = [row.summary.step_time_s.value for row in comparison.rows if row.summary.step_time_s is not None]
    unit_s, unit = time_unit(times_s)
    ratio = "ratio" if comparison.reference is None else f"ratio to {comparison.reference}"
    headers = [f"time, {unit}", ratio, f"% of\n{_percent_of(comparison)}", "items/s", "rounds"]
    if comparison.setting.data is not Data.RANDOM:
        headers.append("loss")
    rows = [list(_cells(row, unit_s)) for row in comparison.rows]
    return WideTable(
        _setting(comparison.setting),
        [Column("variant", [str(row.summary.case.variant) for row in comparison.rows])],
        [Column(header, [row[place] for row in rows]) for place, header in enumerate(headers)],
        [_bar(row, max(times_s, default=0.0)) for row in comparison.rows],
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
    yield _outcome(summary) if summary.step_time_s is None else estimate(summary.step_time_s, unit_s)
    yield _NONE if row.ratio is None else estimate(row.ratio.times)
    yield _NONE if percent is None else number(percent)
    yield _NONE if summary.items_per_s is None else number(summary.items_per_s)
    yield f"{summary.rounds_ok}/{summary.rounds}" if summary.rounds else _NONE
    yield _loss(summary)


def notes(comparison: Comparison) -> Iterator[str]:
    """Yield a line for each missing number: why it is missing."""
    for row in comparison.rows:
        if row.summary.reason is not None:
            yield f"{row.summary.case.variant}: {_why(row.summary)}"
    if any(row.summary.rounds_ok == 1 for row in comparison.rows):
        yield "one round has no interval, because the interval is over rounds"


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
