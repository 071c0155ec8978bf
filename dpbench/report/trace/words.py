"""What a picture, a terminal and a screen reader say about a trace: the same words."""

from collections.abc import Callable, Iterator

from dpbench.report.units import number, time_unit
from dpbench.trace.critical import path_in_words
from dpbench.trace.timeline import Source, Trace, VariantTrace
from dpbench.trace.waits import idle_shares, overlapped_share

_SOURCE = {
    Source.PROJECTED: "Projected, not measured: the times are those of a described machine.",
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


def heading(found: VariantTrace, source: Source) -> str:
    """Return ``tuned: 26.9 ms``, or the variant with the reason why it has no timeline."""
    if found.timeline is None:
        return f"{found.variant}: {found.reason}"
    length = found.timeline.length if found.step_s is None else found.step_s
    return f"{found.variant}: {shown_time(source)(length)}"


def sub_heading(found: VariantTrace, source: Source) -> list[str]:
    """Return a line of shares, the critical path, and the notes."""
    if found.timeline is None:
        return []
    clauses = path_in_words(found.timeline, shown_time(source))
    return [", ".join(shares(found)), f"Critical path: {'; '.join(clauses)}", *found.notes]


def shares(found: VariantTrace) -> Iterator[str]:
    """Return what is overlapped, hidden and idle, each as a text."""
    assert found.timeline is not None
    overlapped, idle = overlapped_share(found.timeline), list(idle_shares(found.timeline).values())
    if overlapped is not None:
        yield f"communication under computation {overlapped:.0%}"
    if found.hidden is not None:
        yield f"communication that the step does not wait for {found.hidden:.0%}"
    if idle:
        low, high = f"{min(idle):.0%}", f"{max(idle):.0%}"
        who = "threads" if "main thread" in found.timeline.devices else "devices"
        yield f"{who} idle {low}" if low == high else f"{who} idle {low} to {high}"


def description(trace: Trace) -> str:
    """Return the whole trace as sentences."""
    parts = [trace.title, source_words(trace.source)]
    for each in trace.variants:
        parts.append(heading(each, trace.source))
        parts += sub_heading(each, trace.source)
    return ". ".join(part.removesuffix(".") for part in (*parts, *trace.notes)) + "."
