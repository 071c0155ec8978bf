"""A trace as a table with the critical paths below it, and as JSON."""

from typing import Any

from rich.console import Group
from rich.text import Text

from dpbench.report.table import Column, Table
from dpbench.report.trace.words import shown_time, source_words
from dpbench.report.units import number, time_unit
from dpbench.trace.critical import parts_of_path, path_in_words
from dpbench.trace.timeline import Source, Timeline, Trace, VariantTrace
from dpbench.trace.waits import idle_shares, overlapped_share

SCHEMA = 1
_OVERLAPPED = "Overlapped: the share of the communication's time in which a device computes, as the mean over them."
_LEGENDS = {
    Source.PROJECTED: (
        f"{_OVERLAPPED} Hidden: the share that the step does not wait for, as in dpbench project. Idle: the share of "
        "the drawn step in which each device computes nothing, device 0 first."
    ),
    Source.RECORDED: (
        f"{_OVERLAPPED} Idle: the share of the drawn step in which each device computes nothing. On CPU lanes each "
        "thread that runs operators counts as a device, the main thread first."
    ),
    Source.SIMULATED: f"{_OVERLAPPED} Idle: the share of the units in which each device computes nothing.",
}


def trace_text(trace: Trace) -> Group:
    """Return a table with a row for each variant, the critical paths, and a legend."""
    return Group(
        Text(source_words(trace.source), style="bold"),
        Text(),
        _table(trace),
        *(line for each in trace.variants for line in _path(each, trace.source)),
        *(Text(note) for note in trace.notes),
        Text(_LEGENDS[trace.source], style="dim"),
    )


def _table(trace: Trace) -> Table:
    found = [(each, each.timeline) for each in trace.variants if each.timeline is not None]
    is_simulated = trace.source is Source.SIMULATED
    lengths = {each.variant: timeline.length if each.step_s is None else each.step_s for each, timeline in found}
    unit, name = (1.0, "units") if is_simulated else time_unit(lengths.values())
    columns = [
        Column("variant", lambda row: row[0].variant),
        Column(
            f"step\n{name}",
            lambda row: lengths[row[0].variant] / unit,
            "{:,.0f}".format if is_simulated else number,
        ),
        Column("over-\nlapped", lambda row: overlapped_share(row[1]), "{:.0%}".format),
        Column("hidden", lambda row: row[0].hidden, "{:.0%}".format),
        Column("idle", lambda row: _idle(row[1])),
    ]
    if trace.source is not Source.PROJECTED:
        del columns[3]
    return Table(trace.title, columns, found)


def _idle(timeline: Timeline) -> str | None:
    return " ".join(f"{share:.0%}" for share in idle_shares(timeline).values()) or None


def _path(found: VariantTrace, source: Source) -> list[Text]:
    if found.timeline is None:
        return [Text(f"{found.variant}: {found.reason}")]
    shown = shown_time(source)
    lines = [f"critical path of {found.variant}, {shown(found.timeline.length)}:"]
    lines += [f"  {clause}" for clause in path_in_words(found.timeline, shown)]
    return [Text(line) for line in (*lines, *(f"  ({note})" for note in found.notes), "")]


def trace_json(trace: Trace) -> dict[str, Any]:
    """Return the same as one JSON object. Times are in seconds, or in units if the source is simulated."""
    return {
        "schema": SCHEMA,
        "source": str(trace.source),
        "unit": "unit" if trace.source is Source.SIMULATED else "s",
        "title": trace.title,
        "notes": list(trace.notes),
        "variants": [_variant_json(each, trace.source) for each in trace.variants],
    }


def _variant_json(found: VariantTrace, source: Source) -> dict[str, Any]:
    if found.timeline is None:
        return {"variant": found.variant, "reason": found.reason}
    return {
        "variant": found.variant,
        "step_time_s": found.step_s,
        "drawn": found.timeline.length,
        "overlapped_share": overlapped_share(found.timeline),
        "hidden_share": found.hidden,
        "idle_shares": idle_shares(found.timeline),
        "critical_path": [
            {
                "doing": None if part.doing is None else str(part.doing),
                "who": part.who,
                "phase": part.phase,
                "length": part.length,
                "share": part.share,
                "waited": part.waited,
                "moved": None if part.moved is None else str(part.moved),
                "lanes": list(part.lanes),
                "is_own": part.is_own,
                "is_replicating": part.is_replicating,
            }
            for part in parts_of_path(found.timeline)
        ],
        "critical_path_in_words": path_in_words(found.timeline, shown_time(source)),
        "notes": list(found.notes),
    }
