"""One step at any batch, from recordings at two or three small ones.

Pure: numpy, without torch. FLOPs and bytes of an event are affine in the global batch. Two recordings give the line::

    flops(batch) = constant + per_item x batch

A third recording checks it. Events of one thread are matched by their order in that thread; threads may interleave
differently. The merged order is that of the smallest batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbench.projection.affine_step import KINDS, QUANTITIES, AffineStep
from dpbench.results.recording import Allocate, Free, Mark, RecordedEvent, Recording

_RELATIVE = 1e-9
_TEXTS = ("name", "node")
_NUMBERS = ("device", "source", "destination", "stream", "parameter")


class NotAffineError(ValueError):
    """Two recordings do not have the same events. The text names the first that differs, and both batches."""


@dataclass(frozen=True, slots=True)
class _Step:
    """The events of a recording without memory and marks; `phases` has the phase of each."""

    events: list[RecordedEvent]
    phases: list[str]

    def of_thread(self) -> dict[int, list[int]]:
        """Return the positions of each thread's events."""
        found: dict[int, list[int]] = {}
        for position, event in enumerate(self.events):
            found.setdefault(getattr(event, "thread", 0), []).append(position)
        return found

    def identity(self, position: int) -> tuple[Any, ...]:
        event = self.events[position]
        fields = ("name", "device", "source", "destination", "stream", "thread", "parameter", "is_launched")
        values = (getattr(event, name, None) for name in fields)
        return (type(event).__name__, *values, self.phases[position])


def merge(recordings: Mapping[int, Recording]) -> AffineStep:
    """Return the step, from its recordings at two or three global batches.

    Raise NotAffineError if the recordings do not have the same events. An operator whose numbers do not lie on a line
    is named in `not_affine`. Raise ValueError for another number of recordings.
    """
    if len(recordings) not in (2, 3):
        raise ValueError(f"recordings: {len(recordings)} batches; allowed: 2 or 3")
    batches = tuple(sorted(recordings))
    steps = [_step(recordings[batch]) for batch in batches]
    first = steps[0]
    partners = [_matched(first, step, (batches[0], batch)) for step, batch in zip(steps, batches, strict=True)]
    quantities: dict[str, Any] = {}
    not_affine: set[int] = set()
    for quantity in QUANTITIES:
        values = np.array(
            [
                [getattr(step.events[at], quantity, 0) for at in order]
                for step, order in zip(steps, partners, strict=True)
            ],
            dtype=np.float64,
        )
        quantities[quantity] = _line(values, batches)
        not_affine.update(_off_the_line(values, batches, quantities[quantity]))
    smallest = recordings[batches[0]]
    return AffineStep(
        devices=smallest.devices,
        batches=batches,
        stream_devices=tuple(device for _, device in sorted(smallest.streams.items())),
        model=smallest.model,
        not_affine=tuple(
            sorted({getattr(first.events[at], "name", type(first.events[at]).__name__) for at in not_affine})
        ),
        **_columns(first),
        **quantities,
    )


def _step(recording: Recording) -> _Step:
    found, phase = _Step([], []), ""
    for event in recording.events:
        if isinstance(event, Mark):
            phase = event.name
        elif not isinstance(event, (Allocate, Free)):
            found.events.append(event)
            found.phases.append(phase)
    return found


def _matched(first: _Step, other: _Step, batches: tuple[int, int]) -> list[int]:
    """Return for each event of `first` the position of its partner. Raise NotAffineError."""
    mine, theirs = first.of_thread(), other.of_thread()
    partner = [0] * len(first.events)
    for thread in sorted(mine.keys() | theirs.keys()):
        own, their = mine.get(thread, []), theirs.get(thread, [])
        for a, b in zip(own, their, strict=False):
            if first.identity(a) != other.identity(b):
                raise _difference(first.events[a], other.events[b], batches)
            partner[a] = b
        if len(own) != len(their):
            at = min(len(own), len(their))
            raise _difference(
                first.events[own[at]] if at < len(own) else None,
                other.events[their[at]] if at < len(their) else None,
                batches,
            )
    return partner


def _difference(a: RecordedEvent | None, b: RecordedEvent | None, batches: tuple[int, int]) -> NotAffineError:
    return NotAffineError(
        f"the step has other events at another batch: {_described(a)} at {batches[0]}, {_described(b)} at {batches[1]}"
    )


def _described(event: RecordedEvent | None) -> str:
    if event is None:
        return "no event"
    fields = ("name", "device", "source", "destination", "stream", "thread")
    values = ", ".join(f"{name} {getattr(event, name)}" for name in fields if hasattr(event, name))
    return f"{type(event).__name__} {event.id} ({values})"


def _line(values: NDArray[np.float64], batches: Sequence[int]) -> NDArray[np.float64]:
    """Return rows ``(constant, per_item)`` of the line through the smallest and the largest batch."""
    per_item = (values[-1] - values[0]) / (batches[-1] - batches[0])
    return np.stack([values[0] - per_item * batches[0], per_item], axis=1)


def _off_the_line(values: NDArray[np.float64], batches: Sequence[int], line: NDArray[np.float64]) -> Iterator[int]:
    """Yield the events whose number at a batch between is not on the line."""
    for row, batch in zip(values[1:-1], batches[1:-1], strict=True):
        expected = line[:, 0] + line[:, 1] * batch
        yield from np.flatnonzero(np.abs(row - expected) > _RELATIVE * np.maximum(np.abs(row), 1.0)).tolist()


def _columns(step: _Step) -> dict[str, Any]:
    """Return the fields of an AffineStep that do not depend on the batch."""
    texts: dict[str, int] = {}

    def text(value: str | None) -> int:
        return -1 if value is None else texts.setdefault(str(value), len(texts))

    def number(value: int | None) -> int:
        return -1 if value is None else value

    columns: dict[str, Any] = {
        "kind": np.array([KINDS.index(type(event).__name__) for event in step.events], dtype=np.int64),
        "phase": np.array([text(phase) for phase in step.phases], dtype=np.int64),
        "thread": np.array([getattr(event, "thread", 0) for event in step.events], dtype=np.int64),
        "is_launched": np.array([int(getattr(event, "is_launched", False)) for event in step.events], dtype=np.int64),
    }
    for field in _TEXTS:
        columns[field] = np.array([text(getattr(event, field, None)) for event in step.events], dtype=np.int64)
    for field in _NUMBERS:
        columns[field] = np.array([number(getattr(event, field, None)) for event in step.events], dtype=np.int64)
    position = {event.id: at for at, event in enumerate(step.events)}
    needed = [
        [position[i] for i in getattr(event, "inputs", getattr(event, "after", ())) if i in position]
        for event in step.events
    ]
    starts = np.cumsum([0, *map(len, needed)])
    flat = np.array([i for each in needed for i in each], dtype=np.int64)
    return {**columns, "texts": tuple(texts), "reference_starts": starts.astype(np.int64), "references": flat}
