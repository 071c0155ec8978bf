"""Counters of one step, from a recording of simulated devices."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from dpbench.records.count_record import Phase, PhaseCounts, Traffic
from dpbench.records.recording import ON_THREADS, Allocate, Copy, HostCall, HostCallName, Mark, Operator, Recording
from dpbench.records.recording import RecordedEvent as Event


def counts_by_phase(recording: Recording, peaks_bytes: Sequence[Mapping[str, int]]) -> dict[Phase, PhaseCounts]:
    """`peaks_bytes` has for each mark of a phase the peak memory by device."""
    events_of = events_by_phase(recording)
    marks = [Phase(event.name) for event in recording.events if isinstance(event, Mark)]
    peaks = defaultdict[Phase, list[Mapping[str, int]]](list)
    for phase, peak_bytes in zip(marks, peaks_bytes, strict=True):
        peaks[phase].append(peak_bytes)
    most = {
        phase: {device: max(peak[device] for peak in marked) for device in marked[0]} for phase, marked in peaks.items()
    }
    return {phase: count_phase(events, most[phase]) for phase, events in events_of.items()}


def events_by_phase(recording: Recording) -> dict[Phase, list[Event]]:
    phases: dict[Phase, list[Event]] = {}
    current: list[Event] = []
    for event in recording.events:
        if isinstance(event, Mark):
            current = phases.setdefault(Phase(event.name), [])
        else:
            current.append(event)
    return phases


def count_phase(events: Sequence[Event], peak_bytes: Mapping[str, int]) -> PhaseCounts:
    operators = [event for event in events if isinstance(event, Operator)]
    copies = [event for event in events if isinstance(event, Copy)]
    return PhaseCounts(
        operators=len(operators) + len(copies),
        kernels=sum(operator.is_launched for operator in operators),
        flops=sum(operator.flops for operator in operators),
        copies=dict(_links(copies)),
        allocations=sum(isinstance(event, Allocate) for event in events),
        host_calls=dict(_host_calls(events)),
        peak_bytes=dict(peak_bytes),
    )


def turns_of(events: Sequence[Event]) -> int:
    threads = [event.thread for event in events if isinstance(event, ON_THREADS)]
    return sum(one != other for one, other in pairwise(threads))


def _host_calls(events: Sequence[Event]) -> Iterator[tuple[str, int]]:
    """Zeros too, so that a first call is a change; but no wrapper empties a cache in a step."""
    counts = Counter(event.name for event in events if isinstance(event, HostCall))
    for name in HostCallName:
        if counts[name] or name is not HostCallName.EMPTY_CACHE:
            yield str(name), counts[name]


def _links(copies: Sequence[Copy]) -> Iterator[tuple[str, Traffic]]:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for copy in copies:
        link = link_of(copy)
        counts[link] += 1
        sizes[link] += copy.size_bytes
    for link in sorted(counts):
        yield link, Traffic(count=counts[link], size_bytes=sizes[link])


def link_of(copy: Copy) -> str:
    return f"{_name(copy.source)}->{_name(copy.destination)}"


def _name(device: int | None) -> str:
    return "host" if device is None else f"sim:{device}"
