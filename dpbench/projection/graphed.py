"""A step of ``tuned[graphs=true]``, from the eager recording of its lanes in sequence. Pure.

The rules are those of dpbench/parallel/graphs.py::

    forward     copy of the inputs ──> launch: the lane's operators, which wait for buckets where they read weights
    backward    lane i's thread: copy of the gradients ──> launch: operators, pack b1, operators, pack b0
                hub:  clone lane 0's b1, sum b1, which waits for each pack b1, not for the whole graph; the same for b0

- A lane's operators, and its packs with the events behind them, become the nodes of one launch.
- The waits for buckets are nodes, each where a module reads a weight. The host makes no calls for them.
- No tensors are made for the weights, because a graph knows where they lie.
- Lane 0's flats are cloned on the hub, because the sum is made in their memory.
- What is outside of the graphs stays as recorded: scatter, broadcast, gather, loss, sums and the optimizer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, pairwise

from dpbench.errors import WrongInputError
from dpbench.projection.replay.events import MAIN, AnyEvent, GraphLaunch
from dpbench.records.counts import Phase
from dpbench.records.recording import Copy, HostCall, HostCallName, HostWait, Mark, Operator, Recording, Wait

_HOME = 0
_PACK, _TOKEN, _SPARSE = "aten._foreach_copy_.default", "aten.empty.", "aten._indices.default"
_LANE_NODE, _SUM_NODE, _ACCUMULATION = "LaneNodeBackward", "SumNodeBackward", "torch::autograd::AccumulateGrad"
_ARRIVAL = HostCallName.STREAM_LOOKUP
"""What follows the lookup of a handle if the lane waits for a bucket there."""
_OF_ARRIVALS = (HostCallName.HANDLE_LOOKUP, HostCallName.STREAM_LOOKUP, HostCallName.STREAM_WAIT)
_DETACH = "aten.detach.default"
_OUTSIDE = (_SUM_NODE, _ACCUMULATION)
_Lane = tuple[list[Operator | Wait], list[AnyEvent]]
"""A lane's nodes, and the other events up to the first node of the next lane."""


def graphed_events(recording: Recording) -> tuple[Recording, Sequence[AnyEvent]]:
    """Return the events of a step whose lanes are launched as graphs. One device alone runs eagerly.

    Raise WrongInputError if the wrapper would run the step eagerly.
    """
    if recording.devices == 1:
        return recording, recording.events
    events = recording.events
    begin = next(i for i, event in enumerate(events) if isinstance(event, Mark) and event.name == Phase.BACKWARD)
    end = next(i for i, event in enumerate(events) if isinstance(event, Mark) and event.name == Phase.OPTIMISER)
    if any(isinstance(event, Operator) and event.name == _SPARSE for event in events):
        raise _refused("there are sparse gradients")
    sums = (e.stream for e in events if isinstance(e, Operator) and e.node == _SUM_NODE and e.device == _HOME)
    step = _Step(recording, iter(range(max(event.id for event in events) + 1, 1 << 62)), next(sums, _HOME))
    return recording, [*step.forward(events[:begin]), *step.backward(events[begin:end]), *events[end:]]


@dataclass(frozen=True)
class _Step:
    """`hub` is the stream on which lane 0 gets the sums."""

    recording: Recording
    ids: Iterator[int]
    hub: int

    def forward(self, events: Sequence[AnyEvent]) -> Iterator[AnyEvent]:
        """Yield the forward, with a launch where a lane's operators began."""
        first, last = self._lanes_in_forward(events)
        if any(isinstance(event, Copy | HostWait) for event in events[first:last]):
            raise _refused("the forward copies to a device or waits for one")
        sizes = _bytes_to_devices(events[:first], None)
        early = _calls_for_arrivals(events[:last])
        leading, lanes = self._by_lane([event for event in events[first:last] if event.id not in early])
        yield from (e for e in events[:first] if e.id not in early and not self._is_of_weights(e))
        yield from leading
        for lane, (nodes, others) in lanes.items():
            yield from others
            yield from self._launch(lane, nodes, sizes, MAIN)
        yield from dropwhile(_is_settling, events[last:])

    def backward(self, events: Sequence[AnyEvent]) -> Iterator[AnyEvent]:
        """Yield the backward. The sums are issued after the launch of lane 0, as the last lane's."""
        gathered = [i for i, event in enumerate(events) if isinstance(event, Copy) and event.source == _HOME]
        first = gathered[-1] + 1 if gathered else 1
        sizes = _bytes_to_devices(events, _HOME)
        leading, lanes = self._by_lane(events[first:], _OUTSIDE)
        yield from (*events[:first], *leading)
        for lane, (nodes, others) in lanes.items():
            yield from self._launch(lane, nodes, sizes, self._engine(lane))
            yield from others

    def _engine(self, lane: int) -> int:
        return 1 + self.recording.devices + lane

    def _lanes_in_forward(self, events: Sequence[AnyEvent]) -> tuple[int, int]:
        """Return the places of the first event after the broadcast, and of the first one after the last lane."""
        of_others = [i for i, event in enumerate(events) if _is_launched(event, range(1, self.recording.devices))]
        copied = max(i for i, event in enumerate(events[: of_others[0]]) if isinstance(event, Copy))
        tokens = (i for i in range(copied, of_others[0]) if getattr(events[i], "name", "").startswith(_TOKEN))
        return next(tokens, copied + 1), of_others[-1] + 1

    def _is_of_weights(self, event: AnyEvent) -> bool:
        """Whether this makes a new tensor for a weight on a lane. Graphs know where the weights lie."""
        return isinstance(event, Operator) and event.name == _DETACH and event.stream == event.device != _HOME

    def _by_lane(
        self, events: Sequence[AnyEvent], outside: Sequence[str] = ()
    ) -> tuple[list[AnyEvent], dict[int, _Lane]]:
        """Return the events before the first lane, and the lanes in the order in which they begin."""
        leading = others = list[AnyEvent]()
        lanes: dict[int, _Lane] = {}
        packing = set[int]()
        for event in events:
            if isinstance(event, Operator) and event.stream == event.device and event.node not in outside:
                if event.node == _LANE_NODE and self.hub != _HOME:
                    packing.add(event.thread)
                if event.is_launched:
                    if event.device not in lanes:
                        others = []
                        lanes[event.device] = [], others
                    lanes[event.device][0].append(event)
                    if event.node == _LANE_NODE and event.device == _HOME:
                        others += self._clone(event)
            elif isinstance(event, Wait) and event.stream in lanes and not outside:
                lanes[event.stream][0].append(event)
            elif not isinstance(event, HostCall):
                others.append(event)
            elif event.name is HostCallName.EVENT_RECORD and event.thread in packing:
                packing.remove(event.thread)  # a node of the graph
            elif event.name is not HostCallName.HANDLE_LOOKUP or outside:
                others.append(event)
        return leading, lanes

    def _launch(
        self, lane: int, nodes: Sequence[Operator | Wait], sizes: dict[int, int], thread: int
    ) -> Iterator[AnyEvent]:
        """Yield the copy into static memory, and the launch."""
        own = {node.id for node in nodes}
        size = sizes.get(lane, max(sizes.values(), default=0))
        inputs = tuple({i for node in nodes if isinstance(node, Operator) for i in node.inputs} - own)
        yield self._operator(_PACK, lane, size, thread, inputs)
        yield GraphLaunch(next(self.ids), thread, tuple(nodes))

    def _clone(self, pack: Operator) -> Iterator[AnyEvent]:
        """Yield the copy of lane 0's flat, on the hub before its sum. The recorded call of its wait follows."""
        hub, thread = self.hub, self._engine(_HOME)
        if hub != _HOME:
            yield Wait(id=next(self.ids), stream=hub, after=(pack.id,), thread=thread)
        yield self._operator("aten.clone.default", hub, pack.written_bytes, thread, (pack.id,))
        if hub != _HOME:
            yield self._call(HostCallName.RECORD_STREAM, thread)

    def _call(self, name: HostCallName, thread: int) -> HostCall:
        return HostCall(id=next(self.ids), name=name, thread=thread)

    def _operator(self, name: str, stream: int, size: int, thread: int, inputs: tuple[int, ...]) -> Operator:
        """Return an operator that moves so many bytes in the memory of its stream's device."""
        return Operator(
            id=next(self.ids),
            name=name,
            device=self.recording.streams[stream],
            stream=stream,
            read_bytes=size,
            written_bytes=size,
            thread=thread,
            inputs=inputs,
        )


def _refused(reason: str) -> WrongInputError:
    return WrongInputError(f"variants: graphs=true: {reason}, and no graph does this; allowed: graphs=false")


def _calls_for_arrivals(events: Sequence[AnyEvent]) -> set[int]:
    """Return the calls by which the host lets lanes wait for buckets. A graph has nodes for these waits."""
    found = set[int]()
    is_waiting = False
    for event, after in pairwise(events):
        if isinstance(event, HostCall) and event.name is HostCallName.HANDLE_LOOKUP:
            is_waiting = getattr(after, "name", "") == _ARRIVAL
        elif not isinstance(event, Wait):
            is_waiting &= getattr(event, "name", "") in _OF_ARRIVALS
        if is_waiting and isinstance(event, HostCall):
            found.add(event.id)
    return found


def _is_settling(event: AnyEvent) -> bool:
    """Whether this is a lane's last view, or part of the wait for all reads of the weights: lane 0's graph waited."""
    if isinstance(event, Operator):
        return not event.is_launched and event.stream == event.device
    calls = (HostCallName.EVENT_RECORD, HostCallName.STREAM_WAIT)
    return event.name in calls if isinstance(event, HostCall) else isinstance(event, Wait)


def _is_launched(event: AnyEvent, devices: range) -> bool:
    return (
        isinstance(event, Operator) and event.is_launched and event.device in devices and event.stream == event.device
    )


def _bytes_to_devices(events: Sequence[AnyEvent], source: int | None) -> dict[int, int]:
    """Return the bytes that are copied from `source` to each device."""
    found: dict[int, int] = {}
    for event in events:
        if isinstance(event, Copy) and event.source == source and event.destination is not None:
            found[event.destination] = found.get(event.destination, 0) + event.size_bytes
    return found
