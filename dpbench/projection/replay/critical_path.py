"""Which parts of a step its length consists of. Pure.

From the last task back: each task starts when one before it ends, or on time zero. Those tasks are the critical path::

    thread main     [==][==]..........................
    compute 0              [=======]         [===]         path: host, host, compute 0, link, compute 0
    link 0 to 1                     [======]
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from dpbench.projection.replay.fifo import Schedule
from dpbench.projection.replay.tasks import Role, Tasks

_COMPUTE = "compute of device"


def critical_path(tasks: Tasks, schedule: Schedule) -> list[int]:
    """Return the tasks of the critical path, the first one first."""
    return walk_back(schedule.finishes, lambda i: {*tasks.all[i].before, *schedule.follows[i]})


def walk_back(finishes: Sequence[float], before: Callable[[int], Collection[int]]) -> list[int]:
    """Return the path from the last finish back, the first one first. Of those `before` each, the last one is on it."""
    at = max(range(len(finishes)), key=lambda i: finishes[i], default=None)
    path: list[int] = []
    while at is not None:
        path.append(at)
        at = max(before(at), key=lambda i: finishes[i], default=None)
    return path[::-1]


def shares_of_path(tasks: Tasks, schedule: Schedule) -> tuple[tuple[str, float], ...]:
    """Return the parts of the critical path, largest first, as shares of its length."""
    parts: defaultdict[str, float] = defaultdict(float)
    for i in critical_path(tasks, schedule):
        parts[part_of(tasks, i)] += schedule.finishes[i] - schedule.starts[i]
    total = sum(parts.values()) or 1.0
    return tuple((name, time / total) for name, time in sorted(parts.items(), key=lambda part: -part[1]))


def kinds_of_path(parts: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Return the shares of ``host``, ``computation``, ``links`` and others among the parts, largest first."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, share in parts:
        is_compute = name.startswith(_COMPUTE)
        found["computation" if is_compute else name.partition(":")[0]] += share
    return tuple(sorted(found.items(), key=lambda part: -part[1]))


def part_of(tasks: Tasks, i: int) -> str:
    """Return the part of a step that a task belongs to: ``host``, ``compute of device 0``, or what a link carries."""
    task = tasks.all[i]
    if task.role is Role.HOST:
        return "host"
    return f"{_COMPUTE} {task.device}" if task.role is Role.COMPUTE else f"links: {task.name}"
