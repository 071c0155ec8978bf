"""A recorded step at any batch. Pure."""

from dpbench.projection.affine_step import KINDS, AffineStep
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


def recording_at(step: AffineStep, batch: int) -> Recording:
    """Return the recording of the step at this global batch. Its events are numbered from 1, marks from -1 down."""
    events: list[RecordedEvent] = []
    phase = -1
    numbers = _Numbers(step, batch)
    for i, at in enumerate(step.phase.tolist()):
        if at != phase:
            phase = at
            events.append(Mark(id=-1 - len(events), name=str(Phase(step.texts[at]))))
        events.append(numbers.event(i))
    return Recording(step.devices, dict(enumerate(step.stream_devices)), events, step.model)


class _Numbers:
    """The columns of a step as lists, which are read faster."""

    def __init__(self, step: AffineStep, batch: int) -> None:
        self._texts = step.texts
        names = ("kind", "name", "node", "thread", "device", "source", "destination", "stream", "parameter")
        self._columns = {name: getattr(step, name).tolist() for name in (*names, "is_launched")}
        self._starts, self._references = step.reference_starts.tolist(), (step.references + 1).tolist()
        quantities = ("flops", "read_bytes", "written_bytes", "size_bytes")
        self._quantities = {name: step.at(name, batch).round().astype(int).tolist() for name in quantities}

    def event(self, i: int) -> RecordedEvent:
        """Return the event in row i."""
        column, quantity = self._columns, self._quantities
        kind, number, thread = KINDS[column["kind"][i]], i + 1, column["thread"][i]
        before = tuple(self._references[self._starts[i] : self._starts[i + 1]])
        stream, node = column["stream"][i], column["node"][i]
        text = None if node < 0 else self._texts[node]
        match kind:
            case "Operator":
                return Operator(
                    id=number,
                    name=self._texts[column["name"][i]],
                    device=column["device"][i],
                    stream=stream,
                    is_launched=bool(column["is_launched"][i]),
                    flops=quantity["flops"][i],
                    read_bytes=quantity["read_bytes"][i],
                    written_bytes=quantity["written_bytes"][i],
                    inputs=before,
                    node=text,
                    thread=thread,
                )
            case "Copy":
                ends = (None if end < 0 else end for end in (column["source"][i], column["destination"][i]))
                source, destination = ends
                return Copy(
                    id=number,
                    source=source,
                    destination=destination,
                    size_bytes=quantity["size_bytes"][i],
                    stream=stream,
                    inputs=before,
                    node=text,
                    thread=thread,
                )
            case "Wait":
                return Wait(id=number, stream=stream, after=before, thread=thread)
            case "HostWait":
                return HostWait(id=number, after=before, thread=thread)
            case "HostCall":
                return HostCall(id=number, name=HostCallName(self._texts[column["name"][i]]), thread=thread)
        return GradientReady(
            id=number,
            parameter=column["parameter"][i],
            size_bytes=quantity["size_bytes"][i],
            device=column["device"][i],
        )
