"""Comparisons as tables for a terminal."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dpbench.report.device_table import DEVICES_LEGEND, DeviceRows, devices_parts
from dpbench.report.headline import headline, place
from dpbench.report.ladder import ladders
from dpbench.report.ladder_table import LADDER_LEGEND, ladder_parts
from dpbench.report.phase_table import PHASES_LEGEND, phases_parts
from dpbench.report.units import estimate, number, time_unit
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
    for comparison in found.comparisons:
        devices, phases = list(_devices(comparison)), list(_phases(comparison))
        notes = list(_notes(comparison))
        parts += [_table(comparison), *map(Text, [*notes, ""] if notes else []), *devices, *phases]
        legends |= dict.fromkeys([DEVICES_LEGEND] if devices else [])
        legends |= dict.fromkeys([PHASES_LEGEND] if phases else [])
    parts += [
        Text(f"single-device baseline {_setting(s.case)}: {_why(s)}")
        for s in found.single_device_baselines
        if s.reason is not None
    ]
    climbed = list(ladder_parts(ladders(found)))
    parts += climbed
    legends |= dict.fromkeys([LADDER_LEGEND] if climbed else [])
    for name, values in found.differences.items():
        parts.append(Text(f"records of different environments: {name} is {' / '.join(map(str, values))}"))
    percents = dict.fromkeys(_percent_of(comparison) for comparison in found.comparisons)
    several = any(comparison.setting.steps_per_sample > 1 for comparison in found.comparisons)
    legend = _LEGEND + (_STEPS_LEGEND if several else "") + " ".join(_PERCENT_OF[name] for name in percents)
    below = [Text(text, style="dim") for text in (legend, *legends)]
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


def _devices(comparison: Comparison) -> Iterator[RenderableType]:
    summaries = [row.summary for row in comparison.rows]
    return devices_parts([DeviceRows(each.case.variant, each.devices, each.peak_rss_bytes) for each in summaries])


def _phases(comparison: Comparison) -> Iterator[RenderableType]:
    summaries = [row.summary for row in comparison.rows]
    return phases_parts({each.case.variant: each.phases for each in summaries if each.phases is not None})


def _table(comparison: Comparison) -> Table:
    times_s = [row.summary.step_time_s.value for row in comparison.rows if row.summary.step_time_s is not None]
    unit_s, unit = time_unit(times_s)
    title = Text(_setting(comparison.setting), style="bold")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("variant", no_wrap=True)
    ratio = "ratio" if comparison.reference is None else f"ratio to {comparison.reference}"
    headers = [f"time, {unit}", ratio, f"% of\n{_percent_of(comparison)}", "items/s", "rounds"]
    learns = comparison.setting.data is not Data.RANDOM
    for header in [*headers, "loss"] if learns else headers:
        table.add_column(Text(header), justify="right", overflow="fold")
    for row in comparison.rows:
        cells = [*_cells(row, unit_s), *([_loss(row.summary)] if learns else [])]
        table.add_row(*map(Text, cells))
    return table


def _loss(summary: Summary) -> str:
    return _NONE if summary.loss is None else f"{number(summary.loss.first)} to {number(summary.loss.last)}"


def _cells(row: Row, unit_s: float) -> Iterator[str]:
    summary = row.summary
    percent = row.percent_of_limit if row.percent_of_single is None else row.percent_of_single
    yield summary.case.variant
    yield _outcome(summary) if summary.step_time_s is None else estimate(summary.step_time_s, unit_s)
    yield _NONE if row.ratio is None else estimate(row.ratio.times)
    yield _NONE if percent is None else number(percent)
    yield _NONE if summary.items_per_s is None else number(summary.items_per_s)
    yield f"{summary.rounds_ok}/{summary.rounds}" if summary.rounds else _NONE


def _notes(comparison: Comparison) -> Iterator[str]:
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
