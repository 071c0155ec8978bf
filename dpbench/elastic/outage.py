"""From the time stamps of a run to its outages, each with its parts, and to whether it ended as an undisturbed one.

    fault     stop begins  stop ends    start begins     all ready      restored    caught up
      ├─ noticing ─┼─ stopping ─┼─ rendezvous ─┼──── start ────┼── restore ──┼─ redone ─┤

An outage before step n ends when rank 0 has taken the last of the n steps again, or has loaded a checkpoint of all.

At an unchanged number of ranks every sum is taken in the same order, so the loss and all parameters are equal to the
last bit. Another number of ranks adds gradients in another order, so the loss may differ.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isnan

from dpbench.elastic.elastic_record import ElasticEvent, ElasticSettings, EventKind

_NS = 1e-9


class OutagePart(StrEnum):
    NOTICING = "noticing"
    """Until the first agent begins to stop its workers."""
    STOPPING = "stopping"
    """Until the last agent that stops before new workers start has stopped its own."""
    RENDEZVOUS = "rendezvous"
    """Until the first agent starts new workers."""
    START = "start"
    """Until the last worker has its process group and model; further rounds included."""
    RESTORE = "restore"
    """Until the last rank has loaded the checkpoint."""
    REDONE = "redone"
    """Until rank 0 has redone the steps from before the fault."""


@dataclass(frozen=True)
class StampedSpan:
    begin_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) * _NS


@dataclass(frozen=True)
class Outage:
    """`parts` lacks those whose end has no stamp; their time belongs to the next part.

    `span` is None if the run did not catch up. `rounds` counts an agent's starts of its workers, for the agent with
    most. The rates are rank 0's up to the neighbouring outages, checkpoints included; None for fewer than 3 steps.
    """

    fault: ElasticEvent
    parts: Mapping[OutagePart, StampedSpan]
    span: StampedSpan | None
    redone_steps: int | None
    rounds: int
    steps_per_s_before: float | None
    steps_per_s_after: float | None


def outages_of(events: Sequence[ElasticEvent]) -> tuple[Outage, ...]:
    """One for each fault; `events` are in the order of time."""
    faults = [index for index, event in enumerate(events) if event.kind is EventKind.FAULT]
    ends = [*faults[1:], len(events)] if faults else []
    outages: list[Outage] = []
    caught_up_ns = 0
    for fault, end in zip(faults, ends, strict=True):
        outage = _outage(events[:fault], events[fault], events[fault + 1 : end], caught_up_ns)
        outages.append(outage)
        caught_up_ns = outage.span.end_ns if outage.span else events[fault].at_ns
    return tuple(outages)


def steps_done(events: Sequence[ElasticEvent]) -> int:
    return max((event.step + 1 for event in events if _is_step(event) and event.step is not None), default=0)


def steps_kept(events: Sequence[ElasticEvent]) -> int:
    saved = [event.step or 0 for event in events if event.kind is EventKind.CHECKPOINT_END and event.rank == 0]
    return max(saved, default=0)


def steps_per_s(events: Sequence[ElasticEvent]) -> float | None:
    """The rate of rank 0; None for fewer than 3 steps."""
    times_ns = [event.at_ns for event in events if _is_step(event)]
    if len(times_ns) < 3:
        return None
    return (len(times_ns) - 1) / ((times_ns[-1] - times_ns[0]) * _NS)


def _outage(
    before: Sequence[ElasticEvent], fault: ElasticEvent, after: Sequence[ElasticEvent], earlier_end_ns: int
) -> Outage:
    assert fault.step is not None, "the injector names the step"
    done = fault.step
    restored = [event for event in after if event.kind is EventKind.RESTORE_END]
    redone_steps = done - (restored[0].step or 0) if restored else None
    caught_up_ns = _caught_up_ns(after, restored, done)
    within = after if caught_up_ns is None else [event for event in after if event.at_ns <= caught_up_ns]
    later = [] if caught_up_ns is None else [event for event in after if event.at_ns > caught_up_ns]
    return Outage(
        fault=fault,
        parts=_parts(fault, within, caught_up_ns if redone_steps else None),
        span=None if caught_up_ns is None else StampedSpan(fault.at_ns, caught_up_ns),
        redone_steps=redone_steps,
        rounds=max(Counter(event.agent for event in within if event.kind is EventKind.START_BEGIN).values(), default=0),
        steps_per_s_before=steps_per_s([event for event in before if event.at_ns > earlier_end_ns]),
        steps_per_s_after=steps_per_s(later),
    )


def _caught_up_ns(after: Sequence[ElasticEvent], restored: Sequence[ElasticEvent], done: int) -> int | None:
    if not restored:
        return None
    if restored[0].step == done:
        return restored[-1].at_ns
    # A peer of the failed worker may stamp the step before the fault after the fault.
    again = [event for event in after if _is_step(event) and event.at_ns > restored[0].at_ns]
    return next((event.at_ns for event in again if event.step == done - 1), None)


def _parts(fault: ElasticEvent, within: Sequence[ElasticEvent], redone_ns: int | None) -> dict[OutagePart, StampedSpan]:
    """The parts whose ends have a stamp, of no length if it is before the part's begin."""
    first: dict[EventKind, int] = {}
    last: dict[EventKind, int] = {}
    for event in within:
        first.setdefault(event.kind, event.at_ns)
        # Later rounds stop workers too, and belong to the start.
        if event.kind is not EventKind.STOP_END or EventKind.START_BEGIN not in first:
            last[event.kind] = event.at_ns
    ends = {
        OutagePart.NOTICING: first.get(EventKind.STOP_BEGIN),
        OutagePart.STOPPING: last.get(EventKind.STOP_END),
        OutagePart.RENDEZVOUS: first.get(EventKind.START_BEGIN),
        OutagePart.START: last.get(EventKind.READY),
        OutagePart.RESTORE: last.get(EventKind.RESTORE_END),
        OutagePart.REDONE: redone_ns,
    }
    parts: dict[OutagePart, StampedSpan] = {}
    begin_ns = fault.at_ns
    for part, end_ns in ends.items():
        if end_ns is not None:
            parts[part] = StampedSpan(begin_ns, max(begin_ns, end_ns))
            begin_ns = parts[part].end_ns
    return parts


def _is_step(event: ElasticEvent) -> bool:
    return event.kind is EventKind.STEP and event.rank == 0


_MOST_DIFFERENCE = {"float64": 1e-10, "float32": 1e-4}


def why_other_end(done: ElasticEvent, expected: ElasticEvent, settings: ElasticSettings) -> str | None:
    if is_same_to_the_bit(done, expected):
        return None
    difference = loss_difference(done, expected)
    losses = f"the loss is {done.loss:.6g}; that of the undisturbed run is {expected.loss:.6g}"
    losses += f"; the difference is {difference:.1e}"
    if not settings.is_world_changed:
        return losses if difference else f"the loss is equal, {done.loss:.6g}, but the parameters differ"
    most = _MOST_DIFFERENCE[settings.dtype]
    if difference <= most:
        return None
    return (
        f"{losses}, and {most:g} is allowed in {settings.dtype}. A model that uses the other items of its share, as "
        "batch norm does, depends on the number of ranks"
    )


def is_same_to_the_bit(done: ElasticEvent, expected: ElasticEvent) -> bool:
    return (done.loss, done.digest) == (expected.loss, expected.digest)


def loss_difference(done: ElasticEvent, expected: ElasticEvent) -> float:
    """Infinity if a loss is not a number."""
    assert done.loss is not None
    assert expected.loss is not None
    difference = abs(done.loss - expected.loss)
    return inf if isnan(difference) else difference
