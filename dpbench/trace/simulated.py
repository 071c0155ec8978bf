"""A simulated step as a timeline: its operators and copies in their order, and what each copy moves."""

import re
from collections.abc import Iterable

from dpbench.records.counts import Phase
from dpbench.records.recording import Copy, HostWait, Mark, Operator, Recording, Wait
from dpbench.trace.timeline import Doing, Moved, RowNumbers, Span, Timeline, VariantTrace


def device_name(number: int) -> str:
    return f"device {number}"


class StreamNames:
    """The streams of each device, numbered from 1 in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[int, dict[int, int]] = {}

    def name(self, device: int, stream: int) -> str:
        own = self._numbers.setdefault(device, {})
        return f"stream {own.setdefault(stream, len(own) + 1)}"


def simulated_trace(variant: str, recording: Recording) -> VariantTrace:
    """Return the trace of a recording. It has no step time."""
    return VariantTrace(variant, simulated_timeline(recording))


def simulated_timeline(recording: Recording) -> Timeline:
    """Return the recorded operators and copies as spans of one unit each."""
    return _Order(recording).timeline()


class _Order:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._spans: list[Span] = []
        self._rows, self._names = RowNumbers(), StreamNames()
        self._of_event: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._awaited: dict[int, set[int]] = {}
        self._blocked: dict[int, set[int]] = {}
        self._phase = ""

    def timeline(self) -> Timeline:
        for event in self._recording.events:
            match event:
                case Mark():
                    self._phase = event.name
                    self._join_threads()
                case Wait():
                    self._awaited.setdefault(event.stream, set()).update(self._known(event.after))
                case HostWait():
                    self._blocked.setdefault(event.thread, set()).update(self._known(event.after))
                case Operator() if event.is_launched:
                    self._add(event, Doing.COMPUTE)
                case Copy():
                    self._add(event, Doing.MOVE)
        devices = sorted(set(self._recording.streams.values()))
        return Timeline(self._rows.rows(), self._spans, [device_name(device) for device in devices])

    def _join_threads(self) -> None:
        """From here on every thread has waited for all that any of them has waited for."""
        everything = {span for spans in self._blocked.values() for span in spans}
        self._blocked = {0: everything} if everything else {}

    def _known(self, events: Iterable[int]) -> set[int]:
        return {self._of_event[event] for event in events if event in self._of_event}

    def _add(self, event: Operator | Copy, doing: Doing) -> None:
        blocked = self._blocked.setdefault(event.thread, set(self._blocked.get(0, ())))
        before = self._awaited.pop(event.stream, set()) | blocked
        if event.stream in self._last:
            before.add(self._last[event.stream])
        start = max((self._spans[i].finish for i in before), default=0.0)
        device = device_name(self._recording.streams[event.stream])
        row = self._rows.of(device, self._names.name(self._recording.streams[event.stream], event.stream))
        if isinstance(event, Copy):
            what, lane = moved_by(
                self._phase, event.source, event.destination, staged_from(self._spans[i].name for i in sorted(before))
            )
            ends = ("host" if end is None else str(end) for end in (event.source, event.destination))
            name = " to ".join(ends)
            span = Span(f"copy {name}", doing, (row,), start, start + 1, self._phase, None, tuple(before), what, lane)
        else:
            span = Span(event.name, doing, (row,), start, start + 1, self._phase, device, tuple(before))
        self._last[event.stream] = self._of_event[event.id] = len(self._spans)
        self._spans.append(span)


HOME = 0
"""The device of the base: it gathers the outputs and sums the gradients."""

_TO_THE_HOST = re.compile(r"copy (\d+) to host")


def staged_from(before: Iterable[str]) -> int | None:
    """Return the device of the last copy to the host among the names of what a copy waited for; None without one.

    Route "host" sends a piece from a device to the host, and from there to others. Names are in the order of issue.
    """
    return next((int(found[1]) for found in map(_TO_THE_HOST.fullmatch, reversed(list(before))) if found), None)


def moved_by(
    phase: str, source: int | None, destination: int | None, staged: int | None = None
) -> tuple[Moved, int | None]:
    """Return what a copy carries, and the lane that it belongs to; a lane of None means all.

    An end of None is the host. A copy from the host passes on what the device `staged` sent there, or inputs if that is
    None. A chain sends parameters and gradients from lane to lane. They belong to the lane at the far end of the copy.
    """
    if source is None and staged != destination:
        source = staged
    if source is None:
        return Moved.INPUTS, destination
    if destination is None:
        if phase == Phase.BACKWARD:
            return Moved.GRADIENTS, source
        return (Moved.PARAMETERS, None) if source == HOME else (Moved.OUTPUTS, source)
    if phase == Phase.BACKWARD:
        return (Moved.OUTPUT_GRADIENTS, destination) if source == HOME else (Moved.GRADIENTS, source)
    return (Moved.OUTPUTS, source) if destination == HOME else (Moved.PARAMETERS, destination)
