"""What the devices were asked to do, in program order: the log that counters and a replay read.

Every event has an `id`, which grows in program order. A stream runs its events in that order; across streams only
`Wait` orders, and `HostWait` holds the host back. `inputs` are the events that wrote the bytes an event reads.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = "dpbench.events"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A computation on one device. Where `is_launched` is false it is dispatched only: a view, an empty allocation."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Bytes that cross a link, on `stream`. A device is its index, None the host."""

    id: int
    source: int | None
    destination: int | None
    size_bytes: int
    stream: int
    inputs: tuple[int, ...] = ()
    node: str | None = None
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocate:
    id: int
    device: int
    stream: int
    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    id: int
    device: int
    stream: int
    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What `stream` is asked to do next waits for the events in `after`, one for each stream waited for."""

    id: int
    stream: int
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWait:
    """The host asks for nothing more until the events in `after` are over."""

    id: int
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A name that the caller set between two events, such as the beginning of the backward."""

    id: int
    name: str


RecordedEvent = Operator | Copy | Allocate | Free | Wait | HostWait | Mark
_KINDS: dict[str, type[RecordedEvent]] = {
    kind.__name__: kind for kind in (Operator, Copy, Allocate, Free, Wait, HostWait, Mark)
}


@dataclass(slots=True, eq=False)
class Recording:
    """The events of one `recording()`, and the device index of each stream."""

    devices: int
    streams: dict[int, int] = field(default_factory=dict)
    events: list[RecordedEvent] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """One JSON object a line: first what this file is, then the events."""
        head = {"format": FORMAT, "version": VERSION, "devices": self.devices, "streams": self.streams}
        lines = [head, *({"kind": type(event).__name__, **asdict(event)} for event in self.events)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """What `write` wrote. Raises ValueError, naming the line, for anything else."""
        lines = path.read_text().splitlines()
        head = _object(lines[0], f"{path}:1") if lines else {}
        if head.get("format") != FORMAT or head.get("version") != VERSION:
            raise ValueError(f"{path}:1: not a {FORMAT} file of version {VERSION}")
        events = [_event(line, f"{path}:{number}") for number, line in enumerate(lines[1:], start=2)]
        return cls(head["devices"], {int(stream): device for stream, device in head["streams"].items()}, events)


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{place}: not a JSON object")
    return value


def _event(line: str, place: str) -> RecordedEvent:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in _object(line, place).items()
    }
    kind = _KINDS.get(str(values.pop("kind", "")))
    if kind is None:
        raise ValueError(f"{place}: not an event; its kind must be one of {', '.join(_KINDS)}")
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{place}: not a {kind.__name__}: {error}") from None


class Recorder:
    """Hands out event ids always, and keeps the events while a recording runs."""

    def __init__(self) -> None:
        self._last = 0
        self.running: list[Recording] = []

    def next_id(self) -> int:
        self._last += 1
        return self._last

    def add(self, event: RecordedEvent) -> None:
        for recording in self.running:
            recording.events.append(event)

    @contextmanager
    def record(self, recording: Recording) -> Iterator[Recording]:
        self.running.append(recording)
        try:
            yield recording
        finally:
            self.running.remove(recording)
