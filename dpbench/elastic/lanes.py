"""What each rank did when: from the time stamps of a run to spans in lanes, for a drawing.

    outage   ......| noticing | stopping | rendezvous | start ............| restore | redone |
    rank 0   start | restore | steps | checkpoint | steps ...  start | restore | redone | steps
    rank 1   start | restore | steps | checkpoint | steps x    start | restore | redone | steps

A rank has a new process after each restart. A gap in its lane is the time between two processes, and the time in which
it waits for a peer that has failed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dpbench.elastic.elastic_record import ElasticEvent, EventKind
from dpbench.elastic.outage import OutagePart, outages_of


class LanePhase(StrEnum):
    """What fills a span. The parts of an outage have the names of `OutagePart`."""

    NOTICING = OutagePart.NOTICING.value
    STOPPING = OutagePart.STOPPING.value
    RENDEZVOUS = OutagePart.RENDEZVOUS.value
    START = OutagePart.START.value
    RESTORE = OutagePart.RESTORE.value
    REDONE = OutagePart.REDONE.value
    STEPS = "steps"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class LaneSpan:
    """A phase in a lane. Nanoseconds of CLOCK_MONOTONIC."""

    lane: str
    phase: LanePhase
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class LaneFault:
    """A fault in the lane of its rank."""

    lane: str
    name: str
    at_ns: int


def lane_spans(events: Sequence[ElasticEvent]) -> tuple[LaneSpan, ...]:
    """Return the spans: those of the outages, then those of each rank. `events` are those of one run, by time."""
    spans = [
        LaneSpan("outage", LanePhase(part), span.begin_ns, span.end_ns)
        for outage in outages_of(events)
        for part, span in outage.parts.items()
    ]
    ranks = sorted({event.rank for event in events if event.rank is not None})
    for rank in ranks:
        own = [event for event in events if event.rank == rank]
        for pid in dict.fromkeys(event.pid for event in own):
            spans += _process(f"rank {rank}", [event for event in own if event.pid == pid], events)
    return tuple(spans)


def lane_faults(events: Sequence[ElasticEvent]) -> tuple[LaneFault, ...]:
    """Return the faults in the order of time."""
    return tuple(
        LaneFault(f"rank {event.rank}", f"{event.detail}@{event.step}", event.at_ns)
        for event in events
        if event.kind is EventKind.FAULT
    )


def _process(lane: str, own: Sequence[ElasticEvent], events: Sequence[ElasticEvent]) -> Iterator[LaneSpan]:
    """Yield the spans of one process, the steps before the checkpoints that lie within them."""
    at_ns = {event.kind: event.at_ns for event in own}
    for phase, begin, end in (
        (LanePhase.START, EventKind.PROCESS_BEGAN, EventKind.READY),
        (LanePhase.RESTORE, EventKind.RESTORE_BEGIN, EventKind.RESTORE_END),
    ):
        if begin in at_ns and end in at_ns:
            yield LaneSpan(lane, phase, at_ns[begin], at_ns[end])
    if EventKind.RESTORE_END not in at_ns:
        return
    began_ns = at_ns[EventKind.RESTORE_END]
    again_ns = _again_up_to_ns(own, [event for event in events if event.at_ns < began_ns])
    if again_ns is not None:
        yield LaneSpan(lane, LanePhase.REDONE, began_ns, again_ns)
        began_ns = again_ns
    if own[-1].at_ns > began_ns:
        yield LaneSpan(lane, LanePhase.STEPS, began_ns, own[-1].at_ns)
    yield from _checkpoints(lane, own)


def _again_up_to_ns(own: Sequence[ElasticEvent], before: Sequence[ElasticEvent]) -> int | None:
    """Return when the process took the last step that was done before, or its last one of those; None without any."""
    done = max((event.step or 0 for event in before if event.kind is EventKind.STEP), default=-1)
    again = [event.at_ns for event in own if event.kind is EventKind.STEP and (event.step or 0) <= done]
    return max(again, default=None)


def _checkpoints(lane: str, own: Sequence[ElasticEvent]) -> Iterator[LaneSpan]:
    begins = [event.at_ns for event in own if event.kind is EventKind.CHECKPOINT_BEGIN]
    ends = [event.at_ns for event in own if event.kind is EventKind.CHECKPOINT_END]
    for begin_ns, end_ns in zip(begins, ends, strict=False):  # a process that was killed has a begin more
        yield LaneSpan(lane, LanePhase.CHECKPOINT, begin_ns, end_ns)
