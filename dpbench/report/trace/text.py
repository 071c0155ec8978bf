"""A trace as a table with the critical paths below it, as JSON, and in words, which the picture has too."""

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Group
from rich.text import Text

from dpbench.report.table import Column, Table
from dpbench.text.quantities import number, time_unit
from dpbench.trace.critical import idle_shares, overlapped_share, parts_of_path, path_in_words
from dpbench.trace.timeline import Source, Timeline, Trace, VariantTrace

SCHEMA = 1
_OVERLAPPED = "Overlapped: the share of the communication's time in which a device computes, as the mean over them."
_LEGENDS = {
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
        *(line for variant in trace.variants for line in _path(variant, trace.source)),
        *(Text(note) for note in trace.notes),
        Text(_LEGENDS[trace.source], style="dim"),
    )


def _table(trace: Trace) -> Table:
    found = [(variant, variant.timeline) for variant in trace.variants if variant.timeline is not None]
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
        Column("idle", lambda row: _idle(row[1])),
    ]
    return Table(trace.title, columns, found)


def _idle(timeline: Timeline) -> str | None:
    return " ".join(f"{share:.0%}" for share in idle_shares(timeline).values()) or None


def _path(variant_trace: VariantTrace, source: Source) -> list[Text]:
    if variant_trace.timeline is None:
        return [Text(f"{variant_trace.variant}: {variant_trace.reason}")]
    shown = shown_time(source)
    lines = [f"critical path of {variant_trace.variant}, {shown(variant_trace.timeline.length)}:"]
    lines += [f"  {clause}" for clause in path_in_words(variant_trace.timeline, shown)]
    return [Text(line) for line in (*lines, *(f"  ({note})" for note in variant_trace.notes), "")]


def trace_json(trace: Trace) -> dict[str, Any]:
    """Return the same as one JSON object. Times are in seconds, or in units if the source is simulated."""
    return {
        "schema": SCHEMA,
        "source": str(trace.source),
        "unit": "unit" if trace.source is Source.SIMULATED else "s",
        "title": trace.title,
        "notes": list(trace.notes),
        "variants": [_variant_json(variant, trace.source) for variant in trace.variants],
    }


def _variant_json(variant_trace: VariantTrace, source: Source) -> dict[str, Any]:
    if variant_trace.timeline is None:
        return {"variant": variant_trace.variant, "reason": variant_trace.reason}
    return {
        "variant": variant_trace.variant,
        "step_time_s": variant_trace.step_s,
        "drawn": variant_trace.timeline.length,
        "overlapped_share": overlapped_share(variant_trace.timeline),
        "idle_shares": idle_shares(variant_trace.timeline),
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
            for part in parts_of_path(variant_trace.timeline)
        ],
        "critical_path_in_words": path_in_words(variant_trace.timeline, shown_time(source)),
        "notes": list(variant_trace.notes),
    }


_SOURCE = {
    Source.RECORDED: "Recorded by torch.profiler on this machine.",
    Source.SIMULATED: "Simulated: an order, no times. Each operator and each copy takes one unit.",
}


def source_words(source: Source) -> str:
    """Return a sentence that says what the times are."""
    return _SOURCE[source]


def shown_time(source: Source) -> Callable[[float], str]:
    """Return the function that makes a text of a time."""
    return _units if source is Source.SIMULATED else _seconds


def _units(length: float) -> str:
    return f"{length:,.0f} unit{'' if round(length) == 1 else 's'}"


def _seconds(seconds: float) -> str:
    unit, name = time_unit([seconds])
    return f"{number(seconds / unit)} {name}"


def axis_unit(source: Source, longest: float) -> tuple[float, str]:
    """Return the length of the axis' unit and its name."""
    return (1.0, "units") if source is Source.SIMULATED else time_unit([longest])


def heading(variant_trace: VariantTrace, source: Source) -> str:
    """Return ``tuned: 26.9 ms``, or the variant with the reason why it has no timeline."""
    if variant_trace.timeline is None:
        return f"{variant_trace.variant}: {variant_trace.reason}"
    length = variant_trace.timeline.length if variant_trace.step_s is None else variant_trace.step_s
    return f"{variant_trace.variant}: {shown_time(source)(length)}"


def sub_heading(variant_trace: VariantTrace, source: Source) -> list[str]:
    """Return a line of shares, the critical path, and the notes."""
    if variant_trace.timeline is None:
        return []
    clauses = path_in_words(variant_trace.timeline, shown_time(source))
    return [", ".join(shares(variant_trace)), f"Critical path: {'; '.join(clauses)}", *variant_trace.notes]


def shares(variant_trace: VariantTrace) -> Iterator[str]:
    """Return what is overlapped, hidden and idle, each as a text."""
    assert variant_trace.timeline is not None
    overlapped, idle = overlapped_share(variant_trace.timeline), list(idle_shares(variant_trace.timeline).values())
    if overlapped is not None:
        yield f"communication under computation {overlapped:.0%}"
    if idle:
        low, high = f"{min(idle):.0%}", f"{max(idle):.0%}"
        who = "threads" if "main thread" in variant_trace.timeline.devices else "devices"
        yield f"{who} idle {low}" if low == high else f"{who} idle {low} to {high}"


def description(trace: Trace) -> str:
    """Return the whole trace as sentences."""
    parts = [trace.title, source_words(trace.source)]
    for variant in trace.variants:
        parts.append(heading(variant, trace.source))
        parts += sub_heading(variant, trace.source)
    return ". ".join(part.removesuffix(".") for part in (*parts, *trace.notes)) + "."
