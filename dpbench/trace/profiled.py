"""What torch.profiler saw of one step: plain events, read from the file that the profiler exports. Pure.

Everything lies between begin and end of the mark `STEP_MARK`, which waits for the devices at its end.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field

from dpbench.text.frozen import Frozen

STEP_MARK = "step"
MARK = "dpbench: "
"""The beginning of the names of our own marks in the profiler's file."""


class ProfiledKind(StrEnum):
    """OPERATOR and LAUNCH run on a thread of the host, KERNEL and COPY on a stream of a device."""

    OPERATOR = "operator"
    LAUNCH = "launch"
    KERNEL = "kernel"
    COPY = "copy"
    MARK = "mark"


_KINDS = {
    "cpu_op": ProfiledKind.OPERATOR,
    "cuda_runtime": ProfiledKind.LAUNCH,
    "cuda_driver": ProfiledKind.LAUNCH,
    "kernel": ProfiledKind.KERNEL,
    "gpu_memset": ProfiledKind.KERNEL,
    "gpu_memcpy": ProfiledKind.COPY,
}


class ProfiledEvent(Frozen):
    """An event. Times are in seconds from the begin of the step.

    `place` is the number of the thread, 0 for the one that takes the step; or of the stream. `device` is the index of
    the CUDA device, None on the host. `launch` is equal for a launch and for what it started.
    """

    name: str
    kind: ProfiledKind
    place: int
    start_s: float
    length_s: float = Field(ge=0)
    device: int | None = None
    launch: int | None = None


class ProfiledStep(Frozen):
    """A profiled step. `other_s` are the times of steps without a profiler, in seconds.

    `reduction_nodes` are the names of the autograd nodes that sum the lanes' gradients.
    """

    events: tuple[ProfiledEvent, ...]
    length_s: float = Field(gt=0)
    other_s: tuple[float, ...] = Field(min_length=1)
    reduction_nodes: tuple[str, ...] = ()


def profiled_step(
    content: Mapping[str, Any], other_s: tuple[float, ...], reduction_nodes: tuple[str, ...]
) -> ProfiledStep:
    """Return the shortest marked step of a profile. Raise ValueError if no step is marked."""
    events, length_s = step_events(content)
    return ProfiledStep(events=tuple(events), length_s=length_s, other_s=other_s, reduction_nodes=reduction_nodes)


def step_events(content: Mapping[str, Any]) -> tuple[list[ProfiledEvent], float]:
    """Return the events of the shortest marked step in the profiler's Chrome trace, and its length in seconds.

    The events are sorted by start, and the longest first. Of several steps the shortest was disturbed least.
    Raise ValueError if no step is marked.
    """
    found = [event for event in content.get("traceEvents", ()) if event.get("ph") == "X"]
    steps = [event for event in found if event["name"] == MARK + STEP_MARK and event.get("cat") == "user_annotation"]
    if not steps:
        raise ValueError("the profiler recorded no marked step; allowed: a torch whose profiler records marks")
    step = min(steps, key=lambda event: event["dur"])
    first, last = step["ts"], step["ts"] + step["dur"]
    inside = (event for event in found if event is not step and first <= event["ts"] <= last)
    events = sorted(_events(inside, step), key=lambda event: (event.start_s, -event.length_s))
    return events, step["dur"] * 1e-6


def _events(found: Iterable[Mapping[str, Any]], step: Mapping[str, Any]) -> Iterable[ProfiledEvent]:
    threads: dict[Any, int] = {step["tid"]: 0}
    for event in sorted(found, key=lambda event: float(event["ts"])):
        kind = _kind(event)
        if kind is None:
            continue
        about = event.get("args", {})
        on_device = kind in (ProfiledKind.KERNEL, ProfiledKind.COPY)
        place = int(about["stream"]) if on_device else threads.setdefault(event["tid"], len(threads))
        yield ProfiledEvent(
            name=event["name"].removeprefix(MARK),
            kind=kind,
            place=place,
            start_s=(event["ts"] - step["ts"]) * 1e-6,
            length_s=event["dur"] * 1e-6,
            device=int(about["device"]) if on_device else None,
            launch=about.get("correlation") if kind is not ProfiledKind.OPERATOR else None,
        )


def _kind(event: Mapping[str, Any]) -> ProfiledKind | None:
    if event.get("cat") == "user_annotation":
        return ProfiledKind.MARK if event["name"].startswith(MARK) else None
    return _KINDS.get(event.get("cat", ""))
