"""The time stamps of an elastic run as a drawing in text: a row for each part, a column for each slice of time.

steps       ......#####.........................####
noticing    ...........#............................
rendezvous  ............##..........................
"""

from collections.abc import Sequence

from dpbench.elastic.elastic_record import ElasticEvent, EventKind
from dpbench.elastic.outage import OutagePart, StampedSpan, outages_of

_COLUMNS = 64
_NS = 1e-9


def timeline_text(events: Sequence[ElasticEvent]) -> str:
    """Return the rows as lines, with the seconds of both ends and of each fault above them. No events give no text."""
    if not events:
        return ""
    begin_ns, end_ns = events[0].at_ns, events[-1].at_ns
    outages = outages_of(events)
    rows = {"steps": [_instant(event) for event in events if event.kind is EventKind.STEP and event.rank == 0]}
    saved = [event for event in events if event.kind is EventKind.CHECKPOINT_END and event.rank == 0]
    rows["checkpoint"] = [_instant(event) for event in saved]
    rows["fault"] = [_instant(outage.fault) for outage in outages]
    for part in OutagePart:
        rows[part] = [outage.parts[part] for outage in outages if part in outage.parts]
    faults = ", ".join(f"{o.fault.detail} at {(o.fault.at_ns - begin_ns) * _NS:.1f} s" for o in outages)
    title = f"timeline, 0 to {(end_ns - begin_ns) * _NS:.1f} s{f'; {faults}' if faults else ''}"
    return "\n".join([title, *(f"{name:11} {_bar(spans, begin_ns, end_ns)}" for name, spans in rows.items())])


def _instant(event: ElasticEvent) -> StampedSpan:
    return StampedSpan(event.at_ns, event.at_ns)


def _bar(spans: Sequence[StampedSpan], begin_ns: int, end_ns: int) -> str:
    """Return a mark in each column that a span touches."""
    width_ns = max(1, end_ns - begin_ns)
    cells = ["."] * _COLUMNS
    for span in spans:
        first, last = ((at - begin_ns) * (_COLUMNS - 1) // width_ns for at in (span.begin_ns, span.end_ns))
        cells[first : last + 1] = "#" * (last + 1 - first)
    return "".join(cells)
