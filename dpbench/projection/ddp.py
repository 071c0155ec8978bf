"""A step of DistributedDataParallel, from the recording of one device. Pure.

All ranks do the same, so one rank stands for all. Its forward and backward are those of the recording. The rules are
those of torch/csrc/distributed/c10d/reducer.cpp:

- Gradients go into buckets in the order in which they become ready: the first bucket up to 1 MiB, the others 25 MiB.
- A gradient is copied into its bucket at once, and out of it when all buckets have arrived.
- A bucket is sent when its last gradient is there, on a stream of its own, one bucket after the other.
- The buffers of rank 0 are sent before the forward.

While buckets are under way, the backward's operators are slower by the machine's `overlap`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dpbench.projection.replay.events import AnyEvent, Collective
from dpbench.records.counts import Phase
from dpbench.records.recording import GradientReady, Mark, Operator, Recording, Wait

MIB = 1024 * 1024


@dataclass(frozen=True)
class Buckets:
    """Sizes of DDP's buckets, in bytes."""

    first_bytes: float = 1 * MIB
    bucket_bytes: float = 25 * MIB


def ddp_events(recording: Recording, buckets: Buckets = Buckets()) -> tuple[Recording, list[AnyEvent]]:
    """Return a recording with DDP's stream, and the events of a rank's step."""
    stream = max(recording.streams) + 1
    streams = {**recording.streams, stream: next(iter(recording.streams.values()))}
    return replace(recording, streams=streams), list(_events(recording, buckets, stream))


def bucket_ends(ready: Sequence[GradientReady], buckets: Buckets) -> list[int]:
    """Return for each bucket the position of its last gradient, in the order in which gradients become ready."""
    ends, held, limit = [], 0.0, buckets.first_bytes
    for position, gradient in enumerate(ready):
        held += gradient.size_bytes
        if held >= limit:
            ends.append(position)
            held, limit = 0.0, buckets.bucket_bytes
    if held:
        ends.append(len(ready) - 1)
    return ends


def _events(recording: Recording, buckets: Buckets, own: int) -> Iterator[AnyEvent]:
    ready = [event for event in recording.events if isinstance(event, GradientReady)]
    ends = set(bucket_ends(ready, buckets))
    ids = iter(range(max(event.id for event in recording.events) + 1, 1 << 62))
    compute = next(iter(recording.streams))
    buffer_bytes = recording.model.buffer_bytes if recording.model is not None else 0
    engine = 1 + recording.devices
    seen, held = 0, 0.0
    sent: list[int] = []
    last = 0
    for event in recording.events:
        if isinstance(event, Mark) and event.name == Phase.OPTIMISER:
            yield Wait(id=next(ids), stream=compute, after=tuple(sent))
            yield from (_move(gradient, next(ids), compute, engine) for gradient in ready)
        yield event
        if isinstance(event, Mark) and event.name == Phase.FORWARD and buffer_bytes:
            yield Collective(next(ids), "broadcast", buffer_bytes, (compute,), 0)
        if isinstance(event, GradientReady):
            held += event.size_bytes
            move = _move(event, next(ids), compute, engine)
            yield move
            last = move.id
            if seen in ends:
                yield Wait(id=next(ids), stream=own, after=(last,))
                sent.append(next(ids))
                yield Collective(sent[-1], "all_reduce", held, (own,), engine)
                held = 0.0
            seen += 1
        elif isinstance(event, Operator) and event.is_launched:
            last = event.id


def _move(gradient: GradientReady, number: int, stream: int, engine: int) -> Operator:
    size = gradient.size_bytes
    return Operator(
        id=number,
        name="aten.copy_.default",
        device=gradient.device,
        stream=stream,
        read_bytes=size,
        written_bytes=size,
        thread=engine,
    )
