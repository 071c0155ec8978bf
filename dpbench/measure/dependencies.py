"""What must be over before what: two questions about how communication and computation of a step overlap.

An event happens after those that wrote what it reads, after the one before it in its stream, and after what its stream
or the host was told to wait for. The order in which the host asked for it does not matter. `simulator/record.py` says
what the events are.

**Broadcast.** The copies from device to device in the forward that carry nothing of this step's batch. A lane's first
layer is its first operator that reads of the batch and of the broadcast, directly or through other operators. What has
to be there before it: all copies to its device that happen before it.

**Reduction.** The copies in the backward that leave another device than the base's, and whatever the graph nodes that
made them compute (packing, summing): parts of one reduction are linked by their data. Its inputs are the gradients it
reads. A lane's backward are the operators on its device in that phase that are neither a part of a reduction nor follow
from one; half of it is over when the first half of these, in number, is::

    lane 1:   b b b b | b b b b       ready:     the gradients that the reduction reads were written left of the bar,
    lane 2:   b b b b | b b b b                  on every lane
                      ^               startable: nothing right of the bar happens before its copy
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from dpbench.measure.simulated_counts import counts_by_phase
from dpbench.results.counts import Dependencies, Phase
from dpbench.simulator.event_log import Copy, HostWait, Operator, Recording, Wait
from dpbench.simulator.event_log import RecordedEvent as Event

Work = Operator | Copy


def dependencies(recording: Recording, home: int) -> Dependencies:
    """The measures of one recorded training step; the base's device has the index `home`."""
    work = {event.id: event for event in filter(_is_work, recording.events)}
    phases = {phase: list(filter(_is_work, events)) for phase, events in counts_by_phase(recording).items()}
    forward, backward = phases.get(Phase.FORWARD, []), phases.get(Phase.BACKWARD, [])
    data = {event.id: [i for i in event.inputs if i in work] for event in work.values()}
    order = _order(recording, data)
    per_lane = [_broadcast(forward, data, order, device) for device in range(recording.devices) if device != home]
    reduced, ready, startable = _reduction(backward, data, order, home)
    return Dependencies(
        reduced_bytes=reduced,
        ready_at_half_bytes=ready,
        startable_at_half_bytes=startable,
        broadcast_bytes=max((total for total, _ in per_lane), default=0),
        before_first_layer_bytes=max((before for _, before in per_lane), default=0),
    )


def _is_work(event: Event) -> TypeGuard[Work]:
    return isinstance(event, Copy) or (isinstance(event, Operator) and event.is_launched)


def _order(recording: Recording, data: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """For each event at work those that directly precede it."""
    order: dict[int, list[int]] = {}
    waiting: dict[int, list[int]] = {}
    last: dict[int, int] = {}
    held_back: list[int] = []
    told: dict[int, int] = {}
    for event in recording.events:
        if isinstance(event, Wait):
            waiting.setdefault(event.stream, []).extend(event.after)
        elif isinstance(event, HostWait):
            held_back += event.after
        elif _is_work(event):
            stream = event.stream
            before = [*data[event.id], *waiting.pop(stream, []), *held_back[told.get(stream, 0) :]]
            if stream in last:
                before.append(last[stream])
            order[event.id] = [i for i in before if i in data]
            last[stream], told[stream] = event.id, len(held_back)
    return order


def _closure(starts: Iterable[int], before: Mapping[int, Sequence[int]]) -> set[int]:
    """The events themselves and all that precede them."""
    found, pending = set(), list(starts)
    while pending:
        event = pending.pop()
        if event not in found:
            found.add(event)
            pending += before[event]
    return found


def _descends(events: Iterable[Work], data: Mapping[int, Sequence[int]], starts: set[int]) -> set[int]:
    """Those of `events`, in program order, that are among `starts` or read what follows from them."""
    found: set[int] = set()
    for event in events:
        if event.id in starts or not found.isdisjoint(data[event.id]):
            found.add(event.id)
    return found


def _broadcast(
    forward: Sequence[Work], data: Mapping[int, Sequence[int]], order: Mapping[int, Sequence[int]], device: int
) -> tuple[int, int]:
    """Broadcast bytes to the device: all, and those before its first layer."""
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


def _reduction(
    backward: Sequence[Work], data: Mapping[int, Sequence[int]], order: Mapping[int, Sequence[int]], home: int
) -> tuple[int, int, int]:
    """Reduced bytes: all, those ready at half, and those that can have started."""
    copies = [e for e in backward if isinstance(e, Copy) and _is_between_devices(e) and e.source != home]
    nodes = {copy.node for copy in copies if copy.node is not None}
    copied = {copy.id for copy in copies}
    parts = {e.id for e in backward if e.id in copied or e.node in nodes}
    after = _descends(backward, data, parts)
    late = _second_halves([e for e in backward if isinstance(e, Operator) and e.id not in after])
    group_of = _groups(parts, data)
    ready: dict[int, bool] = {}
    for part in sorted(parts):
        inputs = [i for i in data[part] if i not in parts]
        on_time = late.isdisjoint(_closure(inputs, data))
        ready[group_of[part]] = ready.get(group_of[part], True) and on_time
    return (
        sum(copy.size_bytes for copy in copies),
        sum(copy.size_bytes for copy in copies if ready[group_of[copy.id]]),
        sum(copy.size_bytes for copy in copies if late.isdisjoint(_closure([copy.id], order))),
    )


def _second_halves(operators: Sequence[Operator]) -> set[int]:
    """Of each device's operators those behind its first half."""
    by_device: dict[int, list[int]] = {}
    for operator in operators:
        by_device.setdefault(operator.device, []).append(operator.id)
    return {event for lane in by_device.values() for event in lane[len(lane) // 2 :]}


def _groups(parts: set[int], data: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """For each part the least id of those it is linked with, by data among the parts."""
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
