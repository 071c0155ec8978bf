"""The earliest time of each operation: streams in order, after their waits; no host time."""

from dpbench.records.recording import Copy, HostWait, Operator, Wait
from dpbench.records.recording import RecordedEvent as Event

COMPUTE_COST, COPY_COST = 1.0, 0.0


def replay(events: list[Event], costs: dict[int, float] | None = None) -> dict[int, tuple[float, float]]:
    """Start and end of each operator and copy, by id.

    An operator takes one unit of time and a copy no time, unless `costs` has its id. The host takes no time.
    """
    costs = costs or {}
    stream_end: dict[int, float] = {}
    times: dict[int, tuple[float, float]] = {}
    host = 0.0
    for event in events:
        if isinstance(event, Wait):
            after = max((times[i][1] for i in event.after if i in times), default=0.0)
            stream_end[event.stream] = max(stream_end.get(event.stream, 0.0), after)
        elif isinstance(event, HostWait):
            host = max(host, *(times[i][1] for i in event.after if i in times), 0.0)
        elif isinstance(event, Copy) or (isinstance(event, Operator) and event.is_launched):
            start = max(stream_end.get(event.stream, 0.0), host)
            end = start + costs.get(event.id, COPY_COST if isinstance(event, Copy) else COMPUTE_COST)
            times[event.id] = start, end
            stream_end[event.stream] = end
    return times
