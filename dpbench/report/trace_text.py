"""A trace in words and as JSON."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.console import Group
from rich.text import Text

from dpbench.text.outside import by_reason
from dpbench.text.quantities import duration, plural
from dpbench.trace.critical import idle_shares, overlapped_share, parts_of_path, path_in_words
from dpbench.trace.timeline import Source, Timeline, Trace, VariantTrace

SCHEMA = 2
"""Version 1 had notes on the whole trace, which were empty, and `is_replicating` of a part, which was false."""
_SOURCES = {
    Source.RECORDED: "Recorded by torch.profiler. On CPU lanes each thread that runs operators counts as a device.",
    Source.SIMULATED: "Simulated: an order, no times. Each operator and each copy takes one unit.",
}


def trace_text(trace: Trace) -> Group:
    lines = [Text(trace.title, style="bold"), Text(source_words(trace.source))]
    for variant in trace.variants:
        if variant.timeline is not None:
            heading, *sentences = words(variant, trace.source)
            lines += [Text(), Text(heading, style="bold"), *(Text(f"  {line}") for line in sentences)]
    reasons = by_reason((v.variant, str(v.reason)) for v in trace.variants if v.timeline is None)
    return Group(*lines, *(Text(f"\n{reason}", style="bold") for reason in reasons))


def source_words(source: Source) -> str:
    return f"{_SOURCES[source]} A device is idle while it computes nothing."


def words(variant: VariantTrace, source: Source) -> list[str]:
    """The step time, shares, the critical path and the notes; or the reason why there is no timeline."""
    timeline, shown = variant.timeline, partial(shown_time, source)
    if timeline is None:
        return [f"{variant.variant}: {variant.reason}"]
    return [
        f"{variant.variant}: {shown(timeline.length if variant.step_s is None else variant.step_s)}",
        ", ".join(_shares(timeline)),
        f"critical path, {shown(timeline.length)}:",
        *(f"- {clause}" for clause in path_in_words(timeline, shown)),
        *(f"({note})" for note in variant.notes),
    ]


def _shares(timeline: Timeline) -> Iterator[str]:
    overlapped, idle = overlapped_share(timeline), idle_shares(timeline)
    if overlapped is not None:
        yield f"communication under computation {overlapped:.0%}"
    yield f"idle: {', '.join(f'{device} {share:.0%}' for device, share in idle.items())}"


def shown_time(source: Source, time: float) -> str:
    return plural(round(time), "unit") if source is Source.SIMULATED else duration(time)


def trace_json(trace: Trace) -> dict[str, Any]:
    """Times are in seconds, or in units if the source is simulated."""
    return {
        "schema": SCHEMA,
        "source": str(trace.source),
        "unit": "unit" if trace.source is Source.SIMULATED else "s",
        "title": trace.title,
        "variants": [_variant_json(variant, trace.source) for variant in trace.variants],
    }


def _variant_json(variant: VariantTrace, source: Source) -> dict[str, Any]:
    timeline = variant.timeline
    if timeline is None:
        return {"variant": variant.variant, "reason": variant.reason}
    return {
        "variant": variant.variant,
        "step_time_s": variant.step_s,
        "drawn": timeline.length,
        "overlapped_share": overlapped_share(timeline),
        "idle_shares": idle_shares(timeline),
        "critical_path": [asdict(part) for part in parts_of_path(timeline)],
        "critical_path_in_words": path_in_words(timeline, partial(shown_time, source)),
        "notes": list(variant.notes),
    }
