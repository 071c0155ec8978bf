"""How far a step overlaps communication with computation.

**Broadcast.** The copies between devices in the forward that carry no data of this step's batch. The measure is the
bytes to a lane before its first operator that reads data of both the batch and the broadcast, also through other
operators.

**Reduction.** Copies in the backward that start on a device other than the base's, with all other work of their graph
nodes. A lane's backward are the operators on its device in that phase that depend on no reduction. The bar is after the
first half of these operators, by number::

    lane 1:   b b b b | b b b b       ready:     operators left of the bar wrote all gradients that the reduction reads,
    lane 2:   b b b b | b b b b                  on every lane
                      ^               startable: the copy depends on no operator right of the bar

**Issue.** torch's engine runs the ready node with the highest sequence number first. A reduction whose node has a low
number is issued after the whole backward, although nothing makes it wait::

    lane 0:   b b b b | b b b b           the lane that the host issues last
    issued:       R1      R2              R1 is issued at half; R2 is not
              ^   ^
              |   its copies between devices
              its gradients are ready: `operators_before` counts the b between the two
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeGuard

from dpbench.measure.simulated_counts import events_by_phase, turns_of
from dpbench.records.count_record import Dependencies, Phase
from dpbench.records.recording import ON_THREADS, Copy, Operator, Recording
from dpbench.records.recording import RecordedEvent as Event

Work = Operator | Copy


@dataclass(frozen=True)
class Reductions:
    """`inputs` has by part of a reduction the ids of the gradients that it reads, `group_of` the reduction's number."""

    copies: Sequence[Copy]
    inputs: Mapping[int, Sequence[int]]
    group_of: Mapping[int, int]
    lanes: Sequence[Operator]


@dataclass(frozen=True)
class IssueOrder:
    """Counters of `records.counts.Dependencies`."""

    at_half_bytes: int
    operators_before: int
    swaps: int


def issue_order(reductions: Reductions) -> IssueOrder:
    halves = second_halves(reductions.lanes)
    half = max((min(late) for late in halves.values()), default=0)
    issued: dict[int, int] = {}
    for copy in reductions.copies:
        group = reductions.group_of[copy.id]
        issued[group] = min(issued.get(group, copy.id), copy.id)
    ready = dict.fromkeys(issued, 0)
    for part, inputs in reductions.inputs.items():
        group = reductions.group_of[part]
        if group in ready:
            ready[group] = max(ready[group], *inputs, 0)
    return IssueOrder(
        at_half_bytes=sum(copy.size_bytes for copy in reductions.copies if copy.id < half),
        operators_before=sum(ready[group] < lane.id < issued[group] for group in issued for lane in reductions.lanes),
        swaps=sum((ready[a] - ready[b]) * (issued[a] - issued[b]) < 0 for a, b in combinations(issued, 2)),
    )


def second_halves(operators: Sequence[Operator]) -> dict[int, list[int]]:
    """By device, the ids of operators that are not in the first half."""
    by_device: dict[int, list[int]] = {}
    for operator in operators:
        by_device.setdefault(operator.device, []).append(operator.id)
    return {device: lane[len(lane) // 2 :] for device, lane in by_device.items()}


def dependencies(recording: Recording, home: int) -> Dependencies:
    """`home` is the index of the base's device."""
    work = {event.id: event for event in filter(_is_work, recording.events)}
    phases = {phase: list(filter(_is_work, events)) for phase, events in events_by_phase(recording).items()}
    forward, backward = phases.get(Phase.FORWARD, []), phases.get(Phase.BACKWARD, [])
    data = {event.id: [i for i in event.inputs if i in work] for event in work.values()}
    order = _order(recording, data)
    per_lane = [_broadcast(forward, data, order, device) for device in range(recording.devices) if device != home]
    reductions = _reductions(backward, data, home)
    reduced, ready, startable = _overlap(reductions, data, order)
    issue = issue_order(reductions)
    return Dependencies(
        reduced_bytes=reduced,
        ready_at_half_bytes=ready,
        startable_at_half_bytes=startable,
        issued_at_half_bytes=issue.at_half_bytes,
        operators_before_issue=issue.operators_before,
        issue_swaps=issue.swaps,
        broadcast_bytes=max((total for total, _ in per_lane), default=0),
        before_first_layer_bytes=max((before for _, before in per_lane), default=0),
    )


def route_counters(recording: Recording, home: int) -> dict[str, int]:
    lanes = [
        event.size_bytes
        for event in recording.events
        if isinstance(event, Copy) and not {None, home} & {event.source, event.destination}
    ]
    return {
        "copies_in_a_row": _copies_in_a_row(recording),
        "passed_on_bytes": max(lanes, default=0),
        "calls_before_last_lane": _calls_before_last_lane(recording),
        "turns": turns_of(events_by_phase(recording)[Phase.FORWARD]),
    }


def _calls_before_last_lane(recording: Recording) -> int:
    calls, at_begin = 0, dict[int, int]()
    for event in events_by_phase(recording)[Phase.FORWARD]:
        if isinstance(event, Operator) and event.flops:
            at_begin.setdefault(event.device, calls)
        calls += isinstance(event, ON_THREADS)
    return max(at_begin.values(), default=0)


def _copies_in_a_row(recording: Recording) -> int:
    work = {event.id: event for event in filter(_is_work, recording.events)}
    order = _order(recording, {event.id: [i for i in event.inputs if i in work] for event in work.values()})
    rows: dict[int, int] = {}
    for event in work.values():
        is_sent = isinstance(event, Copy) and None not in (event.source, event.destination)
        rows[event.id] = max((rows[i] for i in order[event.id]), default=0) + is_sent
    return max(rows.values(), default=0)


def _is_work(event: Event) -> TypeGuard[Work]:
    return isinstance(event, Copy) or (isinstance(event, Operator) and event.is_launched)


def _order(recording: Recording, data: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    return {event: [*before, *data[event]] for event, before in recording.order().items()}


def _closure(starts: Iterable[int], before: Mapping[int, Sequence[int]]) -> set[int]:
    reached, pending = set(), list(starts)
    while pending:
        event = pending.pop()
        if event not in reached:
            reached.add(event)
            pending += before[event]
    return reached


def _descends(events: Iterable[Work], data: Mapping[int, Sequence[int]], starts: set[int]) -> set[int]:
    """The events that are in `starts` or depend on them by data."""
    descendants: set[int] = set()
    for event in events:
        if event.id in starts or not descendants.isdisjoint(data[event.id]):
            descendants.add(event.id)
    return descendants


def _broadcast(
    forward: Sequence[Work], data: Mapping[int, Sequence[int]], order: Mapping[int, Sequence[int]], device: int
) -> tuple[int, int]:
    of_batch = _descends(forward, data, {e.id for e in forward if isinstance(e, Copy) and e.source is None})
    copies = {e.id for e in forward if _is_between_devices(e) and e.id not in of_batch}
    of_base = _descends(forward, data, copies)
    layers = (e for e in forward if isinstance(e, Operator) and e.device == device)
    first = next((e.id for e in layers if e.id in of_batch and e.id in of_base), None)
    before = set() if first is None else _closure([first], order)
    here = [e for e in forward if isinstance(e, Copy) and e.id in copies and e.destination == device]
    return sum(copy.size_bytes for copy in here), sum(copy.size_bytes for copy in here if copy.id in before)


def _is_between_devices(event: Work) -> bool:
    return isinstance(event, Copy) and event.source is not None and event.destination is not None


def _reductions(backward: Sequence[Work], data: Mapping[int, Sequence[int]], home: int) -> Reductions:
    copies = [e for e in backward if isinstance(e, Copy) and _is_between_devices(e) and e.source != home]
    nodes = {copy.node for copy in copies if copy.node is not None}
    copied = {copy.id for copy in copies}
    parts = {e.id for e in backward if e.id in copied or e.node in nodes}
    after = _descends(backward, data, parts)
    inputs = {part: [i for i in data[part] if i not in parts] for part in parts}
    return Reductions(
        copies=copies,
        inputs=inputs,
        group_of=_groups(parts, data),
        lanes=[e for e in backward if isinstance(e, Operator) and e.id not in after],
    )


def _overlap(
    reductions: Reductions, data: Mapping[int, Sequence[int]], order: Mapping[int, Sequence[int]]
) -> tuple[int, int, int]:
    late = {event for half in second_halves(reductions.lanes).values() for event in half}
    ready: dict[int, bool] = {}
    for part, inputs in sorted(reductions.inputs.items()):
        group = reductions.group_of[part]
        ready[group] = ready.get(group, True) and late.isdisjoint(_closure(inputs, data))
    return (
        sum(copy.size_bytes for copy in reductions.copies),
        sum(copy.size_bytes for copy in reductions.copies if ready[reductions.group_of[copy.id]]),
        sum(copy.size_bytes for copy in reductions.copies if late.isdisjoint(_closure([copy.id], order))),
    )


def _groups(parts: set[int], data: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """For each part the least id of the parts linked with it by data."""
    links: dict[int, list[int]] = {part: [] for part in parts}
    for part in parts:
        for earlier in data[part]:
            if earlier in parts:
                links[part].append(earlier)
                links[earlier].append(part)
    group_of: dict[int, int] = {}
    for part in sorted(parts):
        if part not in group_of:
            group_of.update(dict.fromkeys(_closure([part], links), part))
    return group_of
