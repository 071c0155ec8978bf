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
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from dpbench.gate.judgement import CounterChange

_HOST = re.compile(r".*(python_calls|python_lines|host_operators|threading_calls|\.waits)(\.growth)?")
_MEMORY = re.compile(r".*peak_bytes.*")
_MORE_MEMORY = re.compile(r".*peak_bytes.*|kept\..*|value \(bytes\)")
_SHARE = 'a share such as 0.01, or text such as "1%"; 0 for none, at most 0.5'


def _share(value: object) -> object:
    text = value.strip() if isinstance(value, str) else ""
    return float(text[:-1]) / 100 if re.fullmatch(r"\d+(\.\d+)? ?%", text, re.ASCII) else value


Tolerance = Annotated[float, BeforeValidator(_share), Field(ge=0, le=0.5, strict=True)]


class Tolerances(BaseModel):
    """The table [counts] of a settings file. `tolerated` of 0 takes every call more as worse, whatever `calls` is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tolerated: Tolerance = Field(0.01, description=_SHARE)
    calls: Annotated[int, Field(ge=0, strict=True)] = Field(20, description="a whole number from 0")
    memory: Tolerance = Field(0.01, description=_SHARE)


def with_tolerances(changes: Sequence[CounterChange], tolerances: Tolerances) -> tuple[CounterChange, ...]:
    """Return the same changes, with `tolerated` set for worse counters that grew by so little."""
    return tuple(_marked(change, tolerances) for change in changes)


def _marked(change: CounterChange, tolerances: Tolerances) -> CounterChange:
    base, more = change.base or 0, (change.head or 0) - (change.base or 0)
    most: Any = None
    if _HOST.fullmatch(change.counter):
        most = max(tolerances.tolerated * base, tolerances.calls) if tolerances.tolerated else 0
    elif _MEMORY.fullmatch(change.counter):
        most = tolerances.memory * base
    is_tolerated = change.is_worse is True and most is not None and more <= most
    return change.model_copy(update={"tolerated": True}) if is_tolerated else change


def is_memory(change: CounterChange) -> bool:
    """Whether the counter is one of memory: then head needs more of it, and is not slower."""
    return _MORE_MEMORY.fullmatch(change.counter) is not None
