"""From a recorded step to the published one: where the batch is, which buffers are sent, and what is timed. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.projection.row_file import Data, Series, Table
from dpbench.records.counts import Phase
from dpbench.records.recording import Copy, Mark, RecordedEvent, Recording, Wait


def as_published(recording: Recording, table: Table, series: Series) -> Recording:
    """Return the recording without what the published run lacks, and with what only that run has."""
    events = list(recording.events)
    model = recording.model
    if not series.broadcast_buffers and model is not None:
        model = replace(model, buffer_bytes=0)
    if not series.optimiser:
        end = next(i for i, event in enumerate(events) if isinstance(event, Mark) and event.name == Phase.OPTIMISER)
        events = events[: end + 1]
    if table.data is Data.DEVICE:
        events = [event for event in events if not (isinstance(event, Copy) and event.source is None)]
    elif table.data is Data.HOME:
        events = list(_by_home(events, max(event.id for event in events) + 1))
    return replace(recording, events=events, model=model)


def _by_home(events: list[RecordedEvent], number: int) -> Iterator[RecordedEvent]:
    """Yield the events, with a detour for each copy from the host to another device than 0.

    ``host to 2`` becomes ``host to 0``, a wait of the copy's stream, and ``0 to 2``.
    """
    for event in events:
        if isinstance(event, Copy) and event.source is None and event.destination != 0:
            yield replace(event, id=number, destination=0, stream=0)
            yield Wait(id=number + 1, stream=event.stream, after=(number,), thread=event.thread)
            yield replace(event, source=0, inputs=(number,))
            number += 2
        else:
            yield event
