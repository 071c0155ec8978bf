"""The log of a simulated step: operators, copies, memory and waits, in program order.

Each event has an `id` that grows in program order, in which a stream runs its events. Between streams, only `Wait`
gives an order; `HostWait` blocks the host. `inputs` are the ids of the events that wrote the bytes that an event reads.

`thread` is the host's thread that made the event: 0 takes the step. Another thread has 1 + the index of the device of
its first event with a device, or the next free number. In the backward it is 1 + the number of devices + the device's
index, as CUDA's engine would have it; the simulator has one thread.
"""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from dpbench.records.row import Row, parse_row
from dpbench.text.files import replace_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """If it is not `is_launched`, it is a view or an empty tensor, and the device does no work."""

    id: int
    name: str
    device: int
    stream: int
    is_launched: bool = True
    flops: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    inputs: tuple[int, ...] = ()
    node: str | None = None
    line: str = ""
    thread: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """`source` and `destination` are device indices, None for the host."""

    id: int
    source: int | None
    destination: int | None
    size_bytes: int
    stream: int
    inputs: tuple[int, ...] = ()
    node: str | None = None
    line: str = ""
    thread: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocate:
    """`size_bytes` is rounded up."""

    id: int
    device: int
    stream: int
    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """`size_bytes` is rounded up."""

    id: int
    device: int
    stream: int
    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Later work of `stream` waits for the events in `after`, at most one of each stream."""

    id: int
    stream: int
    after: tuple[int, ...]
    thread: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWait:
    id: int
    after: tuple[int, ...]
    thread: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment such as ``backward``."""

    id: int
    name: str


class HostCallName(StrEnum):
    """A call that costs the host time and the devices none, or that blocks the host.

    `ENGINE_HANDOVER` is an event, a wait and a ``record_stream``, by which torch's engine hands a gradient to another
    stream's node. `STREAM_LOOKUP` makes a Python object for the current stream; `HANDLE_LOOKUP` gives its number.
    `HOST_WAIT` is a synchronisation, an ``item()``, or a copy that blocks, also if nothing is pending. `EMPTY_CACHE`
    frees a real device's unused memory, for which the host waits.
    """

    EVENT_RECORD = "event_record"
    STREAM_WAIT = "stream_wait"
    STREAM_SWITCH = "stream_switch"
    STREAM_LOOKUP = "stream_lookup"
    HANDLE_LOOKUP = "handle_lookup"
    RECORD_STREAM = "record_stream"
    ENGINE_HANDOVER = "engine_handover"
    HOST_WAIT = "host_wait"
    EMPTY_CACHE = "empty_cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCall:
    id: int
    name: HostCallName
    line: str = ""
    thread: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientReady:
    """Autograd has added the last part to the gradient of a `parameter` of this position in ``base.parameters()``."""

    id: int
    parameter: int
    size_bytes: int
    device: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Numbers, a shared module or tensor counted once; `parameter_sizes` has bytes, in the order of
    ``base.parameters()``.
    """

    modules: int
    parameters: int
    buffers: int
    parameter_bytes: int
    buffer_bytes: int
    parameter_sizes: tuple[int, ...]


class _Head(Row):
    kind: Literal["recording"] = "recording"
    devices: int
    streams: dict[int, int]
    model: ModelFacts | None = None


RecordedEvent = Operator | Copy | Allocate | Free | Wait | HostWait | HostCall | GradientReady | Mark
ON_THREADS = (Operator, Copy, Wait, HostWait, HostCall)
_KINDS: dict[str, type[RecordedEvent]] = {
    kind.__name__: kind for kind in (Operator, Copy, Allocate, Free, Wait, HostWait, HostCall, GradientReady, Mark)
}


@dataclass(slots=True, eq=False)
class Recording:
    """`streams` maps each stream to its device's index."""

    devices: int
    streams: dict[int, int] = field(default_factory=dict)
    events: list[RecordedEvent] = field(default_factory=list)
    model: ModelFacts | None = None

    def order(self) -> dict[int, list[int]]:
        """For each launched operator and each copy the ids directly before it: in its stream, and those waited for
        since.
        """
        order: dict[int, list[int]] = {}
        awaited: dict[int, list[int]] = {}
        last: dict[int, list[int]] = {}
        seen: dict[int, int] = {}  # for each stream, how many of the host's waits its last event has seen
        host: list[int] = []
        for event in self.events:
            if isinstance(event, Wait):
                awaited.setdefault(event.stream, []).extend(event.after)
            elif isinstance(event, HostWait):
                host += event.after
            elif isinstance(event, Copy) or (isinstance(event, Operator) and event.is_launched):
                stream = event.stream
                before = [*awaited.pop(stream, []), *host[seen.get(stream, 0) :], *last.get(stream, [])]
                order[event.id] = [earlier for earlier in before if earlier in order]
                last[stream], seen[stream] = [event.id], len(host)
        return order

    def write(self, path: Path) -> None:
        """One JSON object a line: a header, then the events. Raise OSError, and leave an old file, if that fails."""
        head = _Head(devices=self.devices, streams=self.streams, model=self.model)
        lines = [head.to_json(), *({"kind": type(event).__name__, **asdict(event)} for event in self.events)]
        replace_text(path, "".join(json.dumps(line) + "\n" for line in lines))

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """Raise ValueError with the line's number for content that `write` does not make."""
        recording = cls(0)
        lines = path.read_text().splitlines() or ["null"]
        for number, line in enumerate(lines, start=1):
            try:
                if number == 1:
                    head = parse_row(json.loads(line), _Head)
                    recording.devices, recording.streams, recording.model = head.devices, head.streams, head.model
                else:
                    recording.events.append(_event(**json.loads(line)))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ValueError(f"{path}:{number}: {error}") from None
        return recording


def _event(kind: str = "", **values: Any) -> RecordedEvent:
    if kind not in _KINDS:
        raise ValueError(f"not an event; its kind must be one of {', '.join(_KINDS)}")
    if kind == HostCall.__name__:
        values["name"] = HostCallName(str(values.get("name")))
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return _KINDS[kind](**fields)
