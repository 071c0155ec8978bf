"""Which worse counters a project tolerates: a little more work of the host, and a little more memory. Pure.

    counter                                         tolerated growth, by default
    python_calls, python_lines, host_operators,     1 % or 20, whichever is more, in a phase of a case
    threading_calls, waits (for locks)
    peak_bytes                                      1 %

One call more costs a host less than a step time shows, and any refactoring may add one. What a device or a link does is
exact: bytes, copies, kernels, host waits, allocations, races and dependencies have no tolerance. Neither have threads
that are started.
"""

import re
from collections.abc import Sequence

from dpbench.gate.judgement import CounterChange
from dpbench.gate.settings import Tolerances

_HOST = re.compile(r".*(python_calls|python_lines|host_operators|threading_calls|\.waits)(\.growth)?")
_PEAK_MEMORY = re.compile(r".*peak_bytes.*")
_KEPT_MEMORY = re.compile(r"kept\..*|value \(bytes\)")


def with_tolerances(changes: Sequence[CounterChange], tolerances: Tolerances) -> tuple[CounterChange, ...]:
    """Return the same changes, with `tolerated` set for worse counters that grew by so little."""
    return tuple(_marked(change, tolerances) for change in changes)


def _marked(change: CounterChange, tolerances: Tolerances) -> CounterChange:
    base, more = change.base or 0, (change.head or 0) - (change.base or 0)
    most = -1.0
    if _HOST.fullmatch(change.counter):
        most = max(tolerances.tolerated * base, tolerances.calls) if tolerances.tolerated else 0
    elif is_peak_memory(change):
        most = tolerances.memory * base
    return change.model_copy(update={"tolerated": True}) if change.is_worse and more <= most else change


def is_peak_memory(change: CounterChange) -> bool:
    """Whether the counter is the most memory at a time, which may be traded for time."""
    return _PEAK_MEMORY.fullmatch(change.counter) is not None


def is_memory(change: CounterChange) -> bool:
    """Whether the counter is one of memory: then head needs more of it, and is not slower."""
    return is_peak_memory(change) or _KEPT_MEMORY.fullmatch(change.counter) is not None
