"""When each task starts, if each resource serves the first task that is ready. Pure."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from dpbench.projection.replay.tasks import LOCK, Tasks


@dataclass(frozen=True)
class Schedule:
    """`order` are the tasks as they start. `follows` names for each task those that held its resources before it.

    `handovers` are the tasks that take the interpreter lock from another thread. Times are in seconds.
    """

    starts: list[float]
    finishes: list[float]
    order: list[int]
    follows: list[tuple[int, ...]]
    handovers: frozenset[int]


def schedule(tasks: Tasks, seconds: Sequence[float], handover_s: float = 0.0) -> Schedule:
    """Return the schedule of tasks that take `seconds` each, and `handover_s` more where the lock changes hands."""
    count = len(tasks)
    users: list[list[int]] = [[] for _ in range(count)]
    missing, ready, heap = [0] * count, [0.0] * count, []
    for i, task in enumerate(tasks.all):
        missing[i] = len(task.before)
        for earlier in task.before:
            users[earlier].append(i)
        if not task.before:
            heap.append((0.0, 0.0, i))
    heapq.heapify(heap)
    free: dict[str, float] = {}
    last: dict[str, int] = {}
    starts, finishes = [0.0] * count, [0.0] * count
    order: list[int] = []
    follows: list[tuple[int, ...]] = [()] * count
    handovers: set[int] = set()
    while heap:
        at, came, i = heapq.heappop(heap)
        resources = tasks.all[i].resources
        start = max([at, *(free.get(resource, 0.0) for resource in resources)])
        if start > at:
            heapq.heappush(heap, (start, came, i))
            continue
        follows[i] = tuple({last[resource] for resource in resources if resource in last})
        took = seconds[i]
        if LOCK in resources and LOCK in last and tasks.all[last[LOCK]].resources[0] != resources[0]:
            took += handover_s
            handovers.add(i)
        starts[i], finishes[i] = start, start + took
        order.append(i)
        for resource in resources:
            free[resource], last[resource] = finishes[i], i
        for user in users[i]:
            ready[user] = max(ready[user], finishes[i])
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(heap, (ready[user], ready[user], user))
    assert len(order) == count, "a task waits for itself"
    return Schedule(starts, finishes, order, follows, frozenset(handovers))
