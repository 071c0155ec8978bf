"""Comparisons as text for a terminal, as markdown for an issue, and as one JSON object.

SCHEMA history of the JSON object
    1  first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from pydantic_core import to_jsonable_python
from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.analysis.answer import PERCENT_OF, circumstances, headline, place
from dpbench.analysis.compare_variants import ComparedCase, Comparison, Comparisons
from dpbench.analysis.ladder import Ladder, ladders
from dpbench.analysis.summary import Summary
from dpbench.cases.case import Case
from dpbench.cases.names import Data, short_devices
from dpbench.judge.least_samples import LEAST_SAMPLES, least_seconds
from dpbench.records.record import Outcome
from dpbench.report.case_columns import CASE_COLUMNS, ITEMS, PERCENT
from dpbench.report.device_table import DeviceRows, devices_legend, devices_of, devices_parts
from dpbench.report.markdown import MAX_CHARACTERS, escaped, items, markdown_table
from dpbench.report.phase_table import PHASES_LEGEND, phases_parts
from dpbench.report.table import Bar, Column, Table, folded, json_of, of, titled
from dpbench.text.outside import by_reason, one_line
from dpbench.text.quantities import number, time_unit

_LEGEND = "time: median over rounds of the round's median step [95 % interval over rounds]; a ratio below 1 is faster. "
_STEPS_LEGEND = (
    "steps per sample: that many steps ran without a wait for the devices between them; "
    "a time is a sample's divided by its steps. "
)
_LADDER_LEGEND = (
    "ladder: lanes are those of each machine. Devices counts different devices of all machines; lanes that share one "
    "count once. "
    "Scaling eff., efficiency: items/s over those of as many single devices. "
    "Skew: from the fastest to the slowest rank or machine of a step; a machine is as late as its slowest rank."
)
_LEAST_KEY = 20
"""Characters of a variant's name; a longer one is folded if the table then fits."""


def comparisons_text(comparisons: Comparisons, *, with_details: bool = False, warning: str | None = None) -> Group:
    """For each setting the answer and the times; then reasons for missing numbers and a legend.

    A `warning` comes behind the first answer. With details, limits, devices, phases and ladders follow.
    """
    parts: list[RenderableType] = []
    every = comparisons.comparisons
    shared = {circumstances(comparison.setting) for comparison in every}
    for index, comparison in enumerate(every):
        parts += _answer(comparison, "" if len(shared) == 1 else f", {circumstances(comparison.setting)}")
        parts += [Text(warning, style="yellow")] if warning is not None and index == 0 else []
        if comparison.fastest_first:
            parts.append(replace(_times_table(comparison), title="", is_compact=True, least_key=_LEAST_KEY))
        parts.append(Text())
    parts += map(Text, _all_notes(comparisons))
    climbed = ladders(comparisons) if with_details else ()
    of_limit = [False for ladder in climbed for rung in ladder.rungs if rung.percent_of_limit is not None]
    percents = dict.fromkeys([*(comparison.is_shared for comparison in every), *of_limit])
    legend = _LEGEND + (_STEPS_LEGEND if any(comparison.setting.steps_per_sample > 1 for comparison in every) else "")
    legend += " ".join("% {}: {}.".format(*PERCENT_OF[is_shared]) for is_shared in percents)
    said_once = [*(shared if len(shared) == 1 else ()), _rounds(every)]
    parts.append(Text(f"{'; '.join(filter(None, said_once))}. {legend}", style="dim"))
    return Group(*parts, *(_all_details(comparisons, climbed) if with_details else ()))


def _answer(comparison: Comparison, more_of_setting: str) -> Iterator[Text]:
    said = headline(comparison)
    yield Text.assemble(f"{place(said.setting)}{more_of_setting}: ", (said.answer, "bold"))
    if more := " ".join(filter(None, (said.certainty, said.advice))):
        yield Text(more)
    if said.command:
        yield Text(f"  {said.command}", overflow="ignore")  # to be copied


def _all_notes(comparisons: Comparisons) -> Iterator[str]:
    """A note on all settings once, another with the setting's name."""
    by_note: dict[str, list[Case]] = {}
    for comparison in comparisons.comparisons:
        for note in _notes(comparison):
            by_note.setdefault(note, []).append(comparison.setting)
    for note, settings in by_note.items():
        if len(settings) == len(comparisons.comparisons):
            yield note
        else:
            yield from by_reason((place(setting), note) for setting in settings)
    for summary in comparisons.single_device_baselines:
        if summary.reason is not None:
            yield f"single-device baseline {_setting(summary.case)}: {_why(summary)}"
    yield from _unlike(comparisons)


def _unlike(comparisons: Comparisons) -> Iterator[str]:
    for name, values in comparisons.differences.items():
        yield f"records of different environments: {name} is {' / '.join(map(str, values))}"


def _all_details(comparisons: Comparisons, climbed: Sequence[Ladder]) -> Iterator[RenderableType]:
    for comparison in comparisons.comparisons:
        said = headline(comparison)
        if reasons := " ".join(filter(None, (said.limit, said.bottleneck))):
            yield Text(f"{place(comparison.setting)}: {reasons}")
    yield from map(Text, (*_compiling_and_skipping(comparisons), *_stages(comparisons)))
    rows, legends = list[DeviceRows](), dict[str, None]()
    for comparison in comparisons.comparisons:
        devices, phases = list(devices_parts(devices_of(comparison.rows))), list(_phases(comparison))
        if len(comparisons.comparisons) > 1 and (devices or phases):
            yield Text(f"\n{place(comparison.setting)}", style="bold")
        yield from (*devices, *phases)
        rows += devices_of(comparison.rows) if devices else []
        legends |= dict.fromkeys([PHASES_LEGEND] if phases else [])
    yield from map(_ladder_table, climbed)
    for legend in (*([devices_legend(rows)] if rows else []), *legends, *([_LADDER_LEGEND] if climbed else [])):
        yield Text(legend, style="dim")


def _compiling_and_skipping(comparisons: Comparisons) -> Iterator[str]:
    summaries = [row.summary for row in comparisons.cases]
    spans_s = [f"{one.case.variant} {number(one.compile_s)} s" for one in summaries if one.compile_s]
    if spans_s:
        yield f"compiling, before the steps and in no time, in the longest round: {', '.join(spans_s)}"
    skipped = [f"{one.case.variant} {one.skipped_steps}" for one in summaries if one.skipped_steps]
    if skipped:
        yield f"steps that GradScaler skipped, because their gradients overflowed, of all: {', '.join(skipped)}"


def _stages(comparisons: Comparisons) -> Iterator[str]:
    metrics = [one for row in comparisons.cases for one in row.summary.metrics if one.stages_s]
    stages = dict.fromkeys(stage for one in metrics for stage in one.stages_s or ())
    if stages:
        spans_s = {stage: median((one.stages_s or {}).get(stage, 0.0) for one in metrics) for stage in stages}
        parts = ", ".join(f"{stage} {number(span_s)} s" for stage, span_s in spans_s.items())
        yield f"a case's process beside its samples, medians: {parts}"


def _phases(comparison: Comparison) -> Iterator[Table | Text]:
    summaries = [row.summary for row in comparison.rows if row.summary.metrics]
    return phases_parts({summary.case.variant: summary.phases for summary in summaries})


def _times_table(comparison: Comparison) -> Table:
    rows = comparison.fastest_first
    times_s = [row.summary.time_s for row in rows]
    unit_s, unit = time_unit(times_s)

    def time(row: ComparedCase) -> str | None:
        step = row.summary.step_time_s
        return step and step.text(unit_s) + (" *" if row.summary.thin_rounds else "")

    columns = [
        Column("variant", lambda row: row.summary.case.variant),
        Column(f"time, {unit}", time),
        Column(
            "ratio" if comparison.reference is None else f"ratio to {comparison.reference}",
            lambda row: row.ratio and row.ratio.text(),
        ),
        replace(PERCENT, header=f"% {PERCENT_OF[comparison.is_shared][0]}"),
        ITEMS,
    ]
    if comparison.setting.data is not Data.RANDOM:
        columns.append(
            Column("loss", lambda row: row.summary.loss, lambda loss: f"{number(loss.first)} to {number(loss.last)}")
        )
    title = "; ".join(filter(None, (_setting(comparison.setting), _rounds([comparison]))))
    return Table(title, columns, rows, bar=lambda row: _bar(row, max(times_s)), bars_header="relative\ntime")


def _bar(row: ComparedCase, longest_s: float) -> Bar:
    """As a share of the longest; green if surely faster than the reference, red if surely slower."""
    styles = {"faster": "green", "slower": "red"}
    return Bar(row.summary.time_s / longest_s, styles.get(row.ratio.verdict, "") if row.ratio else "")


def _ladder_table(ladder: Ladder) -> Table:
    skews = (skew for rung in ladder.rungs for skew in (rung.rank_skew_s, rung.machine_skew_s) if skew)
    unit_s, unit = time_unit(skews)
    several = any(rung.summary.case.machines > 1 for rung in ladder.rungs)
    columns = [
        replace(column, header=column.header.format(unit), unit=unit_s if "{" in column.header else None)
        for column in titled(_RUNG_COLUMNS)
        if several or column.header != "machines"
    ]
    case = ladder.one_device
    title = f"ladder: {case.workload}, batch {case.batch}, {circumstances(case)}"
    return Table(title, columns, ladder.rungs, keys=2).without_empty_columns()


_RUNG_COLUMNS = (
    Column("", of("summary.case.id"), key="id"),
    Column("variant", of("summary.case.variant"), folded, key="variant"),
    Column("lanes", lambda rung: short_devices(rung.summary.case.lanes_of_a_machine)),
    Column("", of("summary.outcome"), key="outcome"),
    Column("machines", of("summary.case.machines"), key="machines"),
    Column("", lambda rung: len(rung.summary.case.devices), key="lanes"),
    Column("devices", of("devices"), key="devices"),
    Column("", of("summary.items_per_s"), key="items_per_s"),
    Column("items/s", lambda rung: rung.summary.items_per_s or rung.summary.ended),
    Column("scaling\neff., %", of("efficiency_percent"), key="scaling_efficiency_percent"),
    Column("% of\nlimit", of("percent_of_limit"), key="percent_of_limit"),
    Column("skew, {}\nranks", of("rank_skew_s"), key="rank_skew_s"),
    Column("skew, {}\nmachines", of("machine_skew_s"), key="machine_skew_s"),
)


def _notes(comparison: Comparison) -> Iterator[str]:
    """On missing numbers, and on the marks of the table."""
    summaries = [row.summary for row in comparison.rows]
    yield from by_reason((summary.case.variant, _why(summary)) for summary in summaries if summary.reason is not None)
    baselines = {str(row.baseline) for row in comparison.rows if row.baseline is not None and row.baseline.compile_mode}
    yield from (f"100 % is {baseline}, the fastest single" for baseline in baselines)
    if any(summary.rounds_ok == 1 for summary in summaries):
        yield "one round has no interval, because the interval is over rounds"
    if thin := [summary.case for summary in summaries if summary.thin_rounds]:
        least_s = max(least_seconds(case.devices) for case in thin)
        yield f"*: a round has fewer than {LEAST_SAMPLES} samples or {least_s:g} s of them, so the row is not ranked"


def _why(summary: Summary) -> str:
    """In one line. A crashed child's last output may hold any character."""
    text = one_line(str(summary.reason))
    return text if summary.outcome is Outcome.OK else f"{summary.ended}: {text}"


def _setting(case: Case) -> str:
    machines = "" if case.machines == 1 else f" of {case.machines} machines"
    return f"{place(case)}{machines}, {circumstances(case)}"


def _rounds(comparisons: Sequence[Comparison]) -> str:
    """Such as ``5 rounds`` or ``3 to 5 rounds``."""
    taken = {row.summary.rounds_ok for comparison in comparisons for row in comparison.fastest_first}
    return f"{' to '.join(map(str, sorted({min(taken), max(taken)})))} round{'s' * (max(taken) > 1)}" if taken else ""


_MOST_NOTES = 20
_ROOM_AT_THE_END = 400


def comparisons_markdown(named: Sequence[tuple[str, Comparisons]]) -> str:
    """Tables of pairs of a machine's name, maybe empty, and its comparisons.

    The text is short enough for an issue on GitHub: settings that do not fit are left out and counted.
    """
    text, left_out = "", 0
    for name, comparisons in named:
        text += f"## {escaped(name)}\n\n" if name else ""
        for comparison in comparisons.comparisons:
            part = _fitting(comparison, MAX_CHARACTERS - _ROOM_AT_THE_END - len(text))
            text += part
            left_out += not part
        text += "\n".join(items(list(_unlike(comparisons)), _MOST_NOTES))
    return text + (f"{left_out:,} more settings do not fit into {MAX_CHARACTERS:,} characters.\n" if left_out else "")


def _fitting(comparison: Comparison, room: int) -> str:
    """The setting with its details, else without, else nothing."""
    short = "\n".join(_markdown(comparison)) + "\n"
    details = list(_details(comparison))
    whole = short + "\n".join(details) + "\n" if details else short
    return next((text for text in (whole, short) if len(text) <= room), "")


def _markdown(comparison: Comparison) -> Iterator[str]:
    said, (title, *table) = headline(comparison), markdown_table(_times_table(comparison))
    yield from (title, "")
    yield from (f"**{escaped(said.answer)}** {' '.join(map(escaped, said.sentences[1:]))}", "")
    yield from table[1:]
    yield from items(list(_notes(comparison)), _MOST_NOTES)


def _details(comparison: Comparison) -> Iterator[str]:
    parts = [*devices_parts(devices_of(comparison.rows)), *_phases(comparison)]
    if not parts:
        return
    yield from ("<details><summary>Devices and phases</summary>", "")
    for part in parts:
        if isinstance(part, Text):
            yield from items([part.plain] if part.plain else [], _MOST_NOTES)
        else:
            yield from markdown_table(part)
    yield from ("</details>", "")


SCHEMA = 1
_LADDER_AXES = {"workload", "batch", "mode", "dtype", "data", "threads", "steps_per_sample"}


def comparisons_json(comparisons: Comparisons) -> dict[str, Any]:
    """``{"schema", "environment", "cases", "ladders", "answers"}``; ``differences`` too if they were allowed.

    Each case is in `cases` once; rungs name cases by id. Fields that do not apply are None.
    """
    differences = {name: list(values) for name, values in comparisons.differences.items()}
    return {
        "schema": SCHEMA,
        "environment": to_jsonable_python(comparisons.environment),
        **({"differences": differences} if differences else {}),
        "cases": [json_of(CASE_COLUMNS, row) for row in comparisons.cases],
        "ladders": [
            {
                **ladder.one_device.model_dump(mode="json", include=_LADDER_AXES),
                "one_device": ladder.one_device.id,
                "rungs": [json_of(_RUNG_COLUMNS, rung) for rung in ladder.rungs],
            }
            for ladder in ladders(comparisons)
        ],
        "answers": [
            {"setting": said.setting.setting, "answer": said.answer, "sentences": list(said.sentences[1:])}
            for said in map(headline, comparisons.comparisons)
        ],
    }
