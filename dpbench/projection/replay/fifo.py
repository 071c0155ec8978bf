"""When each task starts, if each resource serves the first task that is ready. Pure."""

import heapq
from collections.abc import Collection, Sequence
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
    users = users_of([task.before for task in tasks.all])
    missing, ready = [len(task.before) for task in tasks.all], [0.0] * count
    heap = [(0.0, 0.0, i) for i in range(count) if not missing[i]]
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


def users_of(before: Sequence[Collection[int]]) -> list[list[int]]:
    """Return for each task those that wait for it. `before` are the tasks that each one waits for."""
    users: list[list[int]] = [[] for _ in before]
    for i, earlier in enumerate(before):
        for each in earlier:
            users[each].append(i)
    return users
