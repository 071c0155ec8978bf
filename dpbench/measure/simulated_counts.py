"""A recording of simulated devices as counters."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from dpbench.results.counts import Phase, PhaseCounts, Traffic
from dpbench.simulator.event_log import Allocate, Copy, Mark, Operator, Recording
from dpbench.simulator.event_log import RecordedEvent as Event


def counts_by_phase(recording: Recording) -> dict[Phase, list[Event]]:
    """The events by the mark they follow, in program order; what precedes the first mark is of none."""
    found: dict[Phase, list[Event]] = {}
    current: list[Event] = []
    for event in recording.events:
        if isinstance(event, Mark):
            current = found[Phase(event.name)] = []
        else:
            current.append(event)
    return found


def count_phase(events: Sequence[Event], peak_bytes: Mapping[str, int]) -> PhaseCounts:
    operators = [event for event in events if isinstance(event, Operator)]
    copies = [event for event in events if isinstance(event, Copy)]
    return PhaseCounts(
        operators=len(operators) + len(copies),
        kernels=sum(operator.is_launched for operator in operators),
        flops=sum(operator.flops for operator in operators),
        copies=dict(_links(copies)),
        allocations=sum(isinstance(event, Allocate) for event in events),
        peak_bytes=dict(peak_bytes),
    )


def _links(copies: Sequence[Copy]) -> Iterator[tuple[str, Traffic]]:
    """The traffic of each link, in the order of their names."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for copy in copies:
        link = f"{_name(copy.source)}->{_name(copy.destination)}"
        counts[link] += 1
        sizes[link] += copy.size_bytes
    for link in sorted(counts):
        yield link, Traffic(count=counts[link], size_bytes=sizes[link])


def _name(device: int | None) -> str:
    return "host" if device is None else f"sim:{device}"
