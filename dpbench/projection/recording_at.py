"""A recorded step at any batch. Pure."""

from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

from dpbench.projection.affine_step import KINDS, QUANTITIES, AffineStep
from dpbench.results.counts import Phase
from dpbench.results.recording import (
    Copy,
    GradientReady,
    HostCall,
    HostCallName,
    HostWait,
    Mark,
    Operator,
    RecordedEvent,
    Recording,
    Wait,
)

_EVENTS = {each.__name__: each for each in (Operator, Copy, Wait, HostWait, HostCall, GradientReady)}
_AS_THEY_ARE = ("thread", "device", "stream", "parameter")


def recording_at(step: AffineStep, batch: int) -> Recording:
    """Return the recording of the step at this global batch. Its events are numbered from 1, marks from -1 down."""
    columns = _columns(step, batch)
    kinds = [_EVENTS[kind] for kind in KINDS]
    names = [[field.name for field in fields(kind) if field.name in columns] for kind in kinds]
    events: list[RecordedEvent] = []
    phase = -1
    for i, (at, kind) in enumerate(zip(step.phase.tolist(), step.kind.tolist(), strict=True)):
        if at != phase:
            phase = at
            events.append(Mark(id=-1 - len(events), name=str(Phase(step.texts[at]))))
        values = {name: columns[name][i] for name in names[kind]}
        events.append(kinds[kind](**values) if kinds[kind] is not HostCall else _host_call(values))
    return Recording(step.devices, dict(enumerate(step.stream_devices)), events, step.model)


def _columns(step: AffineStep, batch: int) -> dict[str, Sequence[Any]]:
    """Return the values of all fields that events can have, as lists, which are read faster than arrays."""
    starts, references = step.reference_starts.tolist(), (step.references + 1).tolist()
    before = [tuple(references[begin:end]) for begin, end in pairwise(starts)]
    texts = [*step.texts, None]  # -1 stands for none
    found: dict[str, Sequence[Any]] = {name: getattr(step, name).tolist() for name in _AS_THEY_ARE}
    found |= {name: step.at(name, batch).round().astype(int).tolist() for name in QUANTITIES}
    found |= {name: [texts[i] for i in getattr(step, name).tolist()] for name in ("name", "node")}
    for name in ("source", "destination"):
        found[name] = [None if end < 0 else end for end in getattr(step, name).tolist()]
    is_launched = [bool(each) for each in step.is_launched.tolist()]
    return found | {"id": range(1, len(step) + 1), "is_launched": is_launched, "inputs": before, "after": before}


def _host_call(values: dict[str, Any]) -> HostCall:
    return HostCall(**values | {"name": HostCallName(values["name"])})
