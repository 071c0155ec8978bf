"""A simulated step as a timeline: the order of its operators and copies, without times.

Each operator and each copy takes one unit. It starts when the event before it in its stream has ended, all that the
stream waits for has ended, and the host has issued it. The host takes no time. It stops only to wait for a device::

    device 0, stream 1   [op][op]............[add]
    device 1, stream 1   [op][op][op]
    device 1, stream 2               [copy]         the copy waits for the third operator, and the sum for the copy
"""

from collections.abc import Iterable

from dpbench.results.recording import Copy, HostWait, Mark, Operator, Recording, Wait
from dpbench.trace.moved import moved_by, staged_from
from dpbench.trace.projected import StreamNames, device_name
from dpbench.trace.timeline import Doing, RowNumbers, Span, Timeline, VariantTrace


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
        return Timeline(self._rows.rows(), self._spans, [device_name(each) for each in devices])

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
