"""How long a step's collectives are under way, and how much of that is hidden behind the rank's own operators.

Both come from torch's profiler, in slower steps after the timed ones.

    collectives   from a collective's start in this rank to its end, a wait for slower ranks included
    hidden        the part of it in which an operator of this rank ran

                  operators     ████  ██████████      ██
                  collectives      ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒        collectives: all of ▒
                  hidden           ▒  ▒▒▒▒▒▒▒▒▒▒      ▒▒

On CPU lanes gloo's threads run the collectives; time in gloo's queue does not count. On GPUs both are kernels.
"""

import time
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from torch.profiler import ProfilerActivity, profile

from dpbench.measure.clock import make_clock
from dpbench.measure.session import Session

COLLECTIVES = ("collectives", "hidden")

_MOST_STEPS = 3
_US_PER_S = 1e6
_LAST_EVENT_S = 0.01
"""A thread of gloo may end its last event after the step; torch 2.11's profiler then loses it."""
Span = tuple[float, float]
"""Begin and end, in microseconds."""


def collectives_of(session: Session, steps: int) -> dict[str, float | str]:
    """For each of `COLLECTIVES` its median seconds in a step, or the reason for none; all ranks must call this."""
    devices = session.placement.devices
    idle, is_cpu = make_clock(devices), devices[0].type == "cpu"
    activities = [ProfilerActivity.CPU] if is_cpu else [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    taken = []
    for _ in range(min(steps, _MOST_STEPS)):
        idle()
        with profile(activities=activities) as profiled:
            session.step()
            idle()
            if is_cpu:
                time.sleep(_LAST_EVENT_S)
        taken.append(overlap(*(_spans_on_cpu if is_cpu else _spans_on_gpu)(profiled.events())))
    if not any(under_way for under_way, _ in taken):
        return dict.fromkeys(COLLECTIVES, "the profiler shows no collective in this step")
    return {name: median(step[place] for step in taken) / _US_PER_S for place, name in enumerate(COLLECTIVES)}


def _spans_on_cpu(events: Iterable[Any]) -> tuple[list[Span], list[Span]]:
    timed = [(event.name, event.thread, (event.time_range.start, event.time_range.end)) for event in events]
    gloos = {thread for name, thread, _ in timed if name.startswith("gloo:")}
    collectives = [span for name, _, span in timed if name.startswith("gloo:")]
    return collectives, [span for name, thread, span in timed if name.startswith("aten::") and thread not in gloos]


def _spans_on_gpu(events: Iterable[Any]) -> tuple[list[Span], list[Span]]:
    kernels = [
        (event.name, (event.time_range.start, event.time_range.end))
        for event in events
        if event.device_type.name == "CUDA"
    ]
    collectives = [span for name, span in kernels if name.startswith("nccl")]
    return collectives, [span for name, span in kernels if not name.startswith("nccl")]


def overlap(collectives: Sequence[Span], operators: Sequence[Span]) -> tuple[float, float]:
    one, other = _union(collectives), _union(operators)
    under_way, hidden = sum(end - begin for begin, end in one), 0.0
    place = 0
    for begin, end in one:
        while place < len(other) and other[place][1] <= begin:
            place += 1
        for own_begin, own_end in other[place:]:
            if own_begin >= end:
                break
            hidden += min(end, own_end) - max(begin, own_begin)
    return under_way, hidden


def _union(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged
