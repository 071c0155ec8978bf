"""One step at any batch, from recordings at two or three small ones, and its file.

FLOPs and bytes of an event are affine in the global batch. Two recordings give the line::

    flops(batch) = constant + per_item x batch

A third recording checks it. Events of one thread are matched by their order in that thread; threads may interleave
differently. The merged order is that of the smallest batch.
"""

import gzip
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpbench.records.recording import Allocate, Free, Mark, RecordedEvent, Recording
from dpbench.text.files import replace_bytes
from dpbench.text.frozen import Frozen

Quantity = Literal["flops", "read_bytes", "written_bytes", "size_bytes"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
_RELATIVE = 1e-9
_IDENTITY = ("name", "device", "source", "destination", "stream", "thread", "parameter", "is_launched")
_DESCRIBED = _IDENTITY[:6]
Row = NDArray[np.float64]


class NotAffineError(ValueError):
    """Two recordings do not have the same events. The text names the first that differs, and both batches."""


class _Head(Frozen):
    """The first line of a step's file. The recording at the smallest batch follows."""

    format: Literal["dpbench.step"] = "dpbench.step"
    version: Literal[2] = 2
    batches: tuple[int, ...]
    not_affine: tuple[str, ...]
    last: dict[Quantity, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class AffineStep:
    """A step that was recorded at these global `batches`.

    `first` is the recording at the smallest batch, without memory. `last` has each quantity of its events at the
    largest batch. `not_affine` names operators that are not on their line.
    """

    batches: tuple[int, ...]
    not_affine: tuple[str, ...]
    first: Recording
    last: Mapping[Quantity, tuple[int, ...]]

    def at(self, batch: int) -> Recording:
        """Return the recording at this global batch."""
        begin, end = self.batches[0], self.batches[-1]
        numbers: dict[str, list[Any]] = {}
        for quantity, values in self.last.items():
            line = _line(_row(self.first.events, quantity), np.array(values, dtype=np.float64), begin, end)
            numbers[quantity] = (line[0] + line[1] * batch).round().astype(int).tolist()
        return replace(
            self.first,
            events=[
                replace(event, **{name: numbers[name][i] for name in QUANTITIES if hasattr(event, name)})
                for i, event in enumerate(self.first.events)
            ],
        )

    def write(self, path: Path) -> None:
        """Write the file. Raise OSError and leave an old file as it was if that fails."""
        head = _Head(batches=self.batches, not_affine=self.not_affine, last=dict(self.last))
        text = f"{head.model_dump_json()}\n{self.first.text()}"
        replace_bytes(path, gzip.compress(text.encode(), compresslevel=6, mtime=0))

    @classmethod
    def read(cls, path: Path) -> "AffineStep":
        """Return the step in a file that `write` made. Raise ValueError, with the path and the reason, and OSError."""
        try:
            lines = gzip.decompress(path.read_bytes()).decode().splitlines()
            head = _Head.model_validate_json(lines[0] if lines else "")
            first = Recording.parse(lines[1:], "its recording")
            if {len(first.events)} != {len(values) for values in head.last.values()} or len(head.batches) < 2:
                raise ValueError("its columns have another length")
        except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: not a dpbench.step file of this version: {error}") from None
        return cls(head.batches, head.not_affine, first, head.last)


def merge(recordings: Mapping[int, Recording]) -> AffineStep:
    """Return the step, from its recordings at two or three global batches.

    Raise NotAffineError if the recordings do not have the same events. An operator whose numbers do not lie on a line
    is named in `not_affine`. Raise ValueError for another number of recordings.
    """
    if len(recordings) not in (2, 3):
        raise ValueError(f"recordings: {len(recordings)} batches; allowed: 2 or 3")
    batches = tuple(sorted(recordings))
    begin, end = batches[0], batches[-1]
    first = _of_the_step(recordings[begin])
    others = {batch: _matched(first, recordings[batch], (begin, batch)) for batch in batches[1:]}
    not_affine, last = set[str](), dict[Quantity, tuple[int, ...]]()
    for quantity in QUANTITIES:
        last[quantity] = tuple(int(value) for value in _row(others[end], quantity))
        line = _line(_row(first.events, quantity), _row(others[end], quantity), begin, end)
        for batch in batches[1:-1]:
            row = _row(others[batch], quantity)
            is_off = np.abs(row - (line[0] + line[1] * batch)) > _RELATIVE * np.maximum(np.abs(row), 1.0)
            not_affine |= {getattr(first.events[i], "name", "Copy") for i in np.flatnonzero(is_off)}
    return AffineStep(batches, tuple(sorted(not_affine)), first, last)


def _row(events: Sequence[RecordedEvent], quantity: str) -> Row:
    return np.array([getattr(event, quantity, 0) for event in events], dtype=np.float64)


def _line(first: Row, last: Row, begin: int, end: int) -> tuple[Row, Row]:
    """Return the constants and the parts for each item."""
    per_item = (last - first) / (end - begin)
    return first - per_item * begin, per_item


def _of_the_step(recording: Recording) -> Recording:
    """Return the recording without memory and without lines of sources."""
    no_line: dict[str, Any] = {"line": ""}
    events: list[RecordedEvent] = [
        replace(event, **no_line) if hasattr(event, "line") else event
        for event in recording.events
        if not isinstance(event, Allocate | Free)
    ]
    return replace(recording, streams=dict(sorted(recording.streams.items())), events=events)


def _by_thread(recording: Recording) -> dict[int, list[tuple[RecordedEvent, str]]]:
    """Return each thread's events in their order, with their phases. Marks have a thread of their own."""
    found, phase = defaultdict[int, list[tuple[RecordedEvent, str]]](list), ""
    for event in recording.events:
        if isinstance(event, Mark):
            phase = event.name
        found[-1 if isinstance(event, Mark) else getattr(event, "thread", 0)].append((event, phase))
    return found


def _matched(first: Recording, other: Recording, batches: tuple[int, int]) -> list[RecordedEvent]:
    """Return the partner of each event of `first`. Raise NotAffineError."""
    mine, theirs = _by_thread(first), _by_thread(_of_the_step(other))
    partner: dict[int, RecordedEvent] = {}
    for thread in sorted(mine.keys() | theirs.keys()):
        for a, b in zip_longest(mine.get(thread, ()), theirs.get(thread, ())):
            if a is None or b is None or _identity(*a) != _identity(*b):
                at, there = batches
                raise NotAffineError(
                    "the step has other events at another batch: "
                    f"{_described(a and a[0])} at {at}, {_described(b and b[0])} at {there}"
                )
            partner[id(a[0])] = b[0]
    return [partner[id(event)] for event in first.events]


def _identity(event: RecordedEvent, phase: str) -> tuple[Any, ...]:
    return type(event), phase, *(getattr(event, name, None) for name in _IDENTITY)


def _described(event: RecordedEvent | None) -> str:
    if event is None:
        return "no event"
    values = ", ".join(f"{name} {getattr(event, name)}" for name in _DESCRIBED if hasattr(event, name))
    return f"{type(event).__name__} {event.id} ({values})"
