"""What the host does in a step, from its events, in the names of the stand-in's counters."""

from collections import Counter

from dpbench.projection.replay.events import GraphLaunch
from dpbench.records.counts import Phase
from dpbench.records.recording import Copy, HostCall, HostCallName, Mark, Operator

COUNTERS = {
    HostCallName.EVENT_RECORD: "programs_events",
    HostCallName.STREAM_WAIT: "programs_waits",
    HostCallName.RECORD_STREAM: "record_streams",
}


def calls_of(events):
    """Return the number of each call. The optimizer has one kernel for all parameters."""
    calls, phase = Counter(works=1), ""
    for event in events:
        match event:
            case Mark():
                phase = event.name
            case Copy():
                calls["works"] += 1
            case Operator(is_launched=True) if phase != Phase.OPTIMISER:
                calls["works"] += 1
            case GraphLaunch():
                calls["graph_launches"] += 1
            case HostCall() if event.name in COUNTERS:
                calls[COUNTERS[event.name]] += 1
    return dict(calls)
