"""Comparisons as text for a terminal, as markdown for an issue, and as one JSON object.

A terminal shows the answer and the times; with details also phases, devices and the ladder. Markdown folds the details.

SCHEMA history of the JSON object
    1  first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from operator import itemgetter
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.cases.case import Case
from dpbench.cases.devices import are_shared, format_devices
from dpbench.cases.names import Data
from dpbench.records.compare import Comparison, Comparisons, Row
from dpbench.records.device_summary import DeviceSummary
from dpbench.records.phase_parts import PARTS_OF
from dpbench.records.phase_summary import PhaseSummary
from dpbench.records.readings import OverRounds
from dpbench.records.record import Outcome
from dpbench.records.summary import Summary
from dpbench.report.device_table import DeviceRows, devices_legend, devices_parts, notes_on_missing
from dpbench.report.headline import headline, place
from dpbench.report.ladder import LADDER_LEGEND, Ladder, ladder_table, ladders, ladders_json
from dpbench.report.markdown import MAX_CHARACTERS, escaped, items, markdown_table
from dpbench.report.table import Bar, Column, Table, folded
from dpbench.stats.least_samples import LEAST_SAMPLES, least_seconds
from dpbench.stats.rounds import Estimate
from dpbench.text.outside import one_line
from dpbench.text.quantities import number, time_unit

_LEGEND = "time: median over rounds of the round's median step [95 % interval over rounds]; a ratio below 1 is faster. "
_STEPS_LEGEND = (
    "steps per sample: that many steps ran without a wait for the devices between them; "
    "a time is a sample's divided by its steps. "
)
_LEAST_KEY = 20
"""Characters of a variant's name; a longer one is folded if the table then fits."""
_PERCENT_OF = {
    "limit": "% limit: one device's time for its share alone, over the time; only graphs exceed 100.",
    "single": "% single: one device's time for the whole batch, over the time; may exceed 100.",
}


def load_warning(busy_cores: float, cores: int) -> str:
    return (
        f"Other processes kept {busy_cores:.1f} of {cores} cores busy meanwhile, so times are longer and orders less "
        "sure: stop them and measure again."
    )


def comparisons_text(comparisons: Comparisons, *, with_details: bool = False, warning: str | None = None) -> Group:
    """Return for each setting the answer and the times, about 12 lines; then reasons for missing numbers and a legend.

    A `warning` comes behind the first answer. With details, the limits, the tables of devices and phases and the
    ladders follow, each with its legend.
    """
    parts: list[RenderableType] = []
    shared = {_rest(comparison.setting) for comparison in comparisons.comparisons}
    for index, comparison in enumerate(comparisons.comparisons):
        parts += _answer(comparison, "" if len(shared) == 1 else f", {_rest(comparison.setting)}")
        parts += [Text(warning, style="yellow")] if warning is not None and index == 0 else []
        if any(row.summary.step_times_s for row in comparison.rows):
            parts.append(replace(_times_table(comparison), title="", is_compact=True, least_key=_LEAST_KEY))
        parts.append(Text())
    parts += map(Text, _all_notes(comparisons))
    climbed = ladders(comparisons) if with_details else ()
    of_limit = ["limit" for each in climbed for rung in each.rungs if rung.percent_of_limit is not None]
    percents = dict.fromkeys([*map(_percent_of, comparisons.comparisons), *of_limit])
    several = any(comparison.setting.steps_per_sample > 1 for comparison in comparisons.comparisons)
    legend = _LEGEND + (_STEPS_LEGEND if several else "") + " ".join(_PERCENT_OF[name] for name in percents)
    circumstances = [*(each for each in shared if len(shared) == 1), _rounds(comparisons.comparisons)]
    parts.append(Text(f"{'; '.join(filter(None, circumstances))}. {legend}", style="dim"))
    return Group(*parts, *(_all_details(comparisons, climbed) if with_details else ()))


def _answer(comparison: Comparison, circumstances: str) -> Iterator[Text]:
    """Yield what to use in a setting; then how sure that is, and what to do."""
    said = headline(comparison)
    yield Text.assemble(f"{place(said.setting)}{circumstances}: ", (said.answer, "bold"))
    if more := " ".join(filter(None, (said.certainty, said.advice))):
        yield Text(more)
    if said.command:
        yield Text(f"  {said.command}", overflow="ignore")  # to be copied


def _all_notes(comparisons: Comparisons) -> Iterator[str]:
    """Yield the notes: one of all settings once, another with the setting's name."""
    by_note: dict[str, list[Case]] = {}
    for comparison in comparisons.comparisons:
        for note in _notes(comparison):
            by_note.setdefault(note, []).append(comparison.setting)
    for note, settings in by_note.items():
        if len(settings) == len(comparisons.comparisons):
            yield note
        else:
            yield from (f"{place(setting)}: {note}" for setting in settings)
    for summary in comparisons.single_device_baselines:
        if summary.reason is not None:
            yield f"single-device baseline {_setting(summary.case)}: {_why(summary)}"
    for name, values in comparisons.differences.items():
        yield f"records of different environments: {name} is {' / '.join(map(str, values))}"


def _all_details(comparisons: Comparisons, climbed: Sequence[Ladder]) -> Iterator[RenderableType]:
    legends: dict[str, None] = {}
    rows: list[DeviceRows] = []
    for comparison in comparisons.comparisons:
        said = headline(comparison)
        if reasons := " ".join(filter(None, (said.limit, said.bottleneck))):
            yield Text(f"{place(comparison.setting)}: {reasons}")
    for comparison in comparisons.comparisons:
        devices, phases = list(devices_parts(_devices(comparison))), list(_phases(comparison))
        if len(comparisons.comparisons) > 1 and (devices or phases):
            yield Text(f"\n{place(comparison.setting)}", style="bold")
        yield from (*devices, *phases)
        rows += _devices(comparison) if devices else []
        legends |= dict.fromkeys([PHASES_LEGEND] if phases else [])
    yield from map(ladder_table, climbed)
    legends |= dict.fromkeys([LADDER_LEGEND] if climbed else [])
    for legend in (*([devices_legend(rows)] if rows else []), *legends):
        yield Text(legend, style="dim")


def _devices(comparison: Comparison) -> list[DeviceRows]:
    summaries = [row.summary for row in comparison.rows]
    return [DeviceRows(summary.case.variant, summary.devices, summary.peak_rss_bytes) for summary in summaries]


def _phases(comparison: Comparison) -> Iterator[Table | Text]:
    summaries = [row.summary for row in comparison.rows]
    return phases_parts({summary.case.variant: summary.phases for summary in summaries if summary.phases is not None})


def _times_table(comparison: Comparison) -> Table:
    """Return the times of a setting: a row for each case that has times, the fastest first."""
    timed = [(row.summary.step_time_s.value, row) for row in comparison.rows if row.summary.step_time_s is not None]
    timed.sort(key=itemgetter(0))
    rows = [row for _, row in timed]
    unit_s, unit = time_unit(time_s for time_s, _ in timed)
    longest_s = max((time_s for time_s, _ in timed), default=0.0)

    def time(row: Row) -> str:
        assert row.summary.step_time_s is not None
        return row.summary.step_time_s.text(unit_s) + (" *" if row.summary.thin_rounds else "")

    columns = [
        Column("variant", lambda row: row.summary.case.variant),
        Column(f"time, {unit}", time),
        Column(
            "ratio" if comparison.reference is None else f"ratio to {comparison.reference}",
            lambda row: None if row.ratio is None else row.ratio.times.text(),
        ),
        Column(
            f"% {_percent_of(comparison)}",
            lambda row: row.percent_of_limit if row.percent_of_single is None else row.percent_of_single,
        ),
        Column("items/s", lambda row: row.summary.items_per_s),
    ]
    if comparison.setting.data is not Data.RANDOM:
        columns.append(
            Column("loss", lambda row: row.summary.loss, lambda loss: f"{number(loss.first)} to {number(loss.last)}")
        )
    title = "; ".join(filter(None, (_setting(comparison.setting), _rounds([comparison]))))
    return Table(title, columns, rows, bar=lambda row: _bar(row, longest_s), bars_header="relative\ntime")


def _bar(row: Row, longest_s: float) -> Bar:
    """Return the time as a share of the longest: green if surely faster than the reference, red if surely slower."""
    time, ratio = row.summary.step_time_s, row.ratio
    if time is None:
        return Bar(None)
    if ratio is None or ratio.times.low is None or ratio.times.high is None:
        return Bar(time.value / longest_s)
    return Bar(time.value / longest_s, "green" if ratio.times.high < 1 else "red" if ratio.times.low > 1 else "")


def _notes(comparison: Comparison) -> Iterator[str]:
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
    return f"{case.workload}, batch {case.batch} on {format_devices(case.devices)}{machines}, {_rest(case)}"


def _rounds(comparisons: Sequence[Comparison]) -> str:
    """Return how many rounds were measured, such as ``5 rounds`` or ``3 to 5 rounds``."""
    taken = {row.summary.rounds_ok for each in comparisons for row in each.rows if row.summary.rounds_ok}
    return f"{' to '.join(map(str, sorted({min(taken), max(taken)})))} round{'s' * (max(taken) > 1)}" if taken else ""


def _rest(case: Case) -> str:
    """Return what a setting has beside the workload, the batch and the devices."""
    steps = "" if case.steps_per_sample == 1 else f", {case.steps_per_sample} steps per sample"
    return f"{case.mode}, {case.dtype}, {case.data} data, {case.threads} threads, seed {case.seed}{steps}"


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


def phases_parts(found: Mapping[str, PhaseSummary]) -> Iterator[Table | Text]:
    """Yield the table and its notes, or nothing if no variant has a time. `found` is by variant.

    A variant with several ranks has a column for rank 0 and one for the slowest rank.
    """
    found = dict(_ranks_apart(found))
    unknown = dict.fromkeys(name for each in found.values() for name in each.phases_s if name not in _ROWS)
    rows = {label: _row(name, found) for name, label in {**_ROWS, **{name: one_line(name) for name in unknown}}.items()}
    rows["skew"] = {name: each.skew_s for name, each in found.items()}
    rows["lag"] = {name: _largest_lag(each) for name, each in found.items()}
    notes = [*_disagreements(found), *_missing(rows)]
    rows = {label: row for label, row in rows.items() if any(_value(each) is not None for each in row.values())}
    if not rows:
        return
    unit_s, unit = _unit(found)
    columns = [
        Column("phase", str),
        *(Column(folded(name), partial(_cell, rows, found, name, unit_s)) for name in found),
    ]
    yield Table(f"phases, {unit}", columns, list(rows))
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


def _missing(rows: Mapping[str, Mapping[str, OverRounds | None]]) -> Iterator[str]:
    return notes_on_missing(
        (label.strip(), (variant, ""), figure)
        for label, row in rows.items()
        for variant, figure in row.items()
        if figure is not None
    )


def _row(name: str, found: Mapping[str, PhaseSummary]) -> dict[str, OverRounds | None]:
    return {variant: each.phases_s.get(name) for variant, each in found.items()}


def _largest_lag(phase_summary: PhaseSummary) -> OverRounds | None:
    return None if phase_summary.slowest_rank is None else phase_summary.rank_lag_s[phase_summary.slowest_rank]


def _unit(found: Mapping[str, PhaseSummary]) -> tuple[float, str]:
    """Return the unit for the longest phase of the fastest variant."""
    longest = [
        max((_value(phases_) or 0.0 for phases_ in one.phases_s.values()), default=0.0) for one in found.values()
    ]
    return time_unit([value for value in longest if value])


def _cell(
    rows: Mapping[str, Mapping[str, OverRounds | None]],
    found: Mapping[str, PhaseSummary],
    name: str,
    unit_s: float,
    label: str,
) -> str | None:
    value = _value(rows[label][name])
    if value is None:
        return None
    mark = f" (rank {found[name].slowest_rank})" if label == "lag" else " ≠" if label in found[name].disagreeing else ""
    return f"{number(value / unit_s)}{mark}"


def _value(figure: OverRounds | None) -> float | None:
    return None if figure is None else figure.value


_MOST_NOTES = 20
_ROOM_AT_THE_END = 400


def comparisons_markdown(found: Sequence[tuple[str, Comparisons]]) -> str:
    """Return the tables of each pair of a machine's name and its comparisons. A name may be empty.

    The text is short enough for an issue on GitHub: settings that do not fit are left out and counted.
    """
    text, left_out = "", 0
    for name, comparisons in found:
        text += f"## {escaped(name)}\n\n" if name else ""
        for comparison in comparisons.comparisons:
            part = _fitting(comparison, MAX_CHARACTERS - _ROOM_AT_THE_END - len(text))
            text += part
            left_out += not part
        differing = [f"{field} is {' / '.join(map(str, values))}" for field, values in comparisons.differences.items()]
        text += "\n".join(items([f"records of different environments: {each}" for each in differing], _MOST_NOTES))
    return text + (f"{left_out:,} more settings do not fit into {MAX_CHARACTERS:,} characters.\n" if left_out else "")


def _fitting(comparison: Comparison, room: int) -> str:
    """Return the setting with its details, else without, else nothing."""
    short = "\n".join(_markdown(comparison)) + "\n"
    folded = list(_details(comparison))
    whole = short + "\n".join(folded) + "\n" if folded else short
    return next((text for text in (whole, short) if len(text) <= room), "")


def _markdown(comparison: Comparison) -> Iterator[str]:
    said, (title, *table) = headline(comparison), markdown_table(_times_table(comparison))
    yield from (title, "")
    yield from (f"**{escaped(said.answer)}** {' '.join(map(escaped, said.sentences[1:]))}", "")
    yield from table[1:]
    yield from items(list(_notes(comparison)), _MOST_NOTES)


def _details(comparison: Comparison) -> Iterator[str]:
    parts = [*devices_parts(_devices(comparison)), *_phases(comparison)]
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
_AXES = {"variant", "workload", "batch", "devices", "mode", "dtype", "steps_per_sample"}


def comparisons_json(comparisons: Comparisons) -> dict[str, Any]:
    """Return ``{"schema", "environment", "cases", "ladders", "answers"}``.

    Each case is in `cases` once; fields that do not apply are None. The rungs of `ladders` name cases by id. `answers`
    has for each setting what to use, and further sentences.

    If records of different environments were allowed, ``differences`` has the differing fields with their values.
    """
    rows = _rows(comparisons)
    differences = {name: list(values) for name, values in comparisons.differences.items()}
    return {
        "schema": SCHEMA,
        "environment": None if comparisons.environment is None else comparisons.environment.model_dump(mode="json"),
        **({"differences": differences} if differences else {}),
        "cases": [case_json(row) for row in rows],
        "ladders": ladders_json(ladders(comparisons)),
        "answers": [_answer_json(comparison) for comparison in comparisons.comparisons],
    }


def _answer_json(comparison: Comparison) -> dict[str, Any]:
    said = headline(comparison)
    return {"setting": said.setting.setting, "answer": said.answer, "sentences": list(said.sentences[1:])}


def _rows(comparisons: Comparisons) -> list[Row]:
    """Return one row for each case.

    `single` is in several comparisons if their first lanes are equal. Its ratio and percentages are then None.
    """
    rows: dict[Case, Row] = {}
    for row in (row for comparison in comparisons.comparisons for row in comparison.rows):
        rows[row.summary.case] = row if row.summary.case not in rows else Row(row.summary)
    return [*rows.values(), *(Row(summary) for summary in comparisons.single_device_baselines)]


def case_json(row: Row) -> dict[str, Any]:
    """Return the object of one case."""
    summary, case = row.summary, row.summary.case
    return {
        "id": case.id,
        **case.model_dump(mode="json", include=_AXES),
        "outcome": str(summary.outcome),
        "has_enough_samples": summary.thin_rounds == 0 if summary.step_times_s else None,
        "step_time_s": _step_time(summary.step_time_s, sum(map(len, summary.step_times_s))),
        "ratio": None if row.ratio is None else {"to": str(row.ratio.to), **asdict(row.ratio.times)},
        "percent_of_limit": row.percent_of_limit,
        "percent_of_single": row.percent_of_single,
        **_beside_the_times(summary),
        "loss": None if summary.loss is None else asdict(summary.loss),
        "counts": None,
        "reason": summary.reason,
    }


def _beside_the_times(summary: Summary) -> dict[str, Any]:
    """Return the figures beside the times, by phase, rank and device. Without any, the fields are None."""
    phases = summary.phases
    return {
        "phases_s": {name: asdict(each) for name, each in phases.phases_s.items()}
        if phases and phases.phases_s
        else None,
        "slowest_rank_phases_s": {name: asdict(each) for name, each in phases.slowest_phases_s.items()}
        if phases and phases.slowest_phases_s
        else None,
        "skew_s": asdict(phases.skew_s) if phases and phases.skew_s else None,
        "rank_lag_s": [asdict(rank_lag_) for rank_lag_ in phases.rank_lag_s] if phases and phases.rank_lag_s else None,
        "machine_skew_s": asdict(phases.machine_skew_s) if phases and phases.machine_skew_s else None,
        "peak_rss_bytes": asdict(summary.peak_rss_bytes) if summary.peak_rss_bytes else None,
        "by_device": {device.device: _device(device) for device in summary.devices} if summary.devices else None,
    }


def _device(device_summary: DeviceSummary) -> dict[str, Any]:
    """Return the figures of one device. `uuids` has one UUID, unless rounds were measured on several GPUs."""
    figures = {name: asdict(each) for name, each in device_summary.figures.items()}
    throttled_s = {cause: asdict(each) for cause, each in device_summary.throttled_s.items()}
    return {"uuids": list(device_summary.uuids), **figures, "throttled_s": throttled_s}


def _step_time(found: Estimate | None, samples: int) -> dict[str, Any] | None:
    return None if found is None else {"median": found.value, "low": found.low, "high": found.high, "samples": samples}
