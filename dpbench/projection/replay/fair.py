"""When a step's tasks end: for many draws of the machine, with fairly shared links, and beside collectives. Pure.

`fair_finish_s` lets copies share links fairly, instead of one after the other.

Each copy that is under way gets the max-min fair share of its links (Bertsekas and Gallager, Data Networks, 6.5.2)::

    link A  |-- copy 1 alone --|-- copy 1, half --|-- copy 2 alone --|
                               |-- copy 2, half --|

The time of a copy alone on its links is known, so a link's capacity is one: a copy that would need 2 s alone and gets a
half takes 4 s. All other tasks hold their resources as in `fifo.py`.

`finish_times` is for many draws of a machine's parameters at once. The order in which a resource serves its tasks is
that of the mid case. With this order fixed, a task's finish is the latest finish of those before it, plus its own time.
A row of an array holds all draws, so one pass answers all.

`slowed_beside`: operators that run while a collective runs are slower, because it uses the device too.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpbench.projection.replay.fifo import Schedule, users_of
from dpbench.projection.replay.tasks import Rate, Role, Task, Tasks
from dpbench.records.counts import Phase

Array = NDArray[np.float64]


def costs(tasks: Tasks) -> tuple[list[Rate], Array]:
    """Return all rates, and the amount of each rate (column) that each task (row) takes."""
    names = list(dict.fromkeys(rate for task in tasks.all for rate in task.cost))
    position = {rate: column for column, rate in enumerate(names)}
    amounts = np.zeros((len(tasks), len(names)))
    for row, task in enumerate(tasks.all):
        for rate, amount in task.cost.items():
            amounts[row, position[rate]] = amount
    return names, amounts


def finish_times(tasks: Tasks, schedule: Schedule, seconds: Array) -> Array:
    """Return the finish of each task (row) in each draw (column), from the `seconds` that it takes there."""
    finish = np.zeros_like(seconds)
    for i in schedule.order:
        row = finish[i]
        for earlier in {*tasks.all[i].before, *schedule.follows[i]}:
            np.maximum(row, finish[earlier], out=row)
        row += seconds[i]
    return finish


_DONE_S = 1e-12


def fair_finish_s(tasks: Tasks, schedule: Schedule, seconds: Sequence[float]) -> float:
    """Return when the last task ends, in seconds. Resources that are not links keep the order of `schedule`."""
    before = [
        set(task.before) if task.role is Role.LINK else {*task.before, *follows}
        for task, follows in zip(tasks.all, schedule.follows, strict=True)
    ]
    users, missing = users_of(before), [len(tasks) for tasks in before]
    ready = [i for i, count in enumerate(missing) if not count]
    now, ends = 0.0, list[tuple[float, int]]()
    left, rates = dict[int, float](), dict[int, float]()  # of the copies under way, in seconds alone on their links
    while ready or ends or left:
        for i in ready:
            if tasks.all[i].role is Role.LINK and seconds[i] > _DONE_S:
                left[i] = seconds[i]
            else:
                heapq.heappush(ends, (now + seconds[i], i))
        if left.keys() != rates.keys():
            rates = fair_shares({i: tasks.all[i].resources for i in left})
        copy_ends = now + min((rest / rates[i] for i, rest in left.items()), default=float("inf"))
        at = min(ends[0][0] if ends else float("inf"), copy_ends)
        left = {i: rest - (at - now) * rates[i] for i, rest in left.items()}
        now = at
        ended = [i for i, rest in left.items() if rest <= _DONE_S * max(1.0, now)]  # rounding errors
        left = {i: rest for i, rest in left.items() if i not in ended}
        while ends and ends[0][0] <= now:
            ended.append(heapq.heappop(ends)[1])
        ready = [user for i in ended for user in users[i] if _is_last(missing, user)]
    return now


def _is_last(missing: list[int], user: int) -> bool:
    """Return whether a task waits for nothing more, now that one before it has ended."""
    missing[user] -= 1
    return not missing[user]


def fair_shares(users: Mapping[int, Sequence[str]]) -> dict[int, float]:
    """Return the max-min fair share of each user, if each link has capacity 1 and a user needs all of its links."""
    shares: dict[int, float] = {}
    capacity: dict[str, float] = dict.fromkeys((link for links in users.values() for link in links), 1.0)
    waiting = {user: links for user, links in users.items() if links}
    shares |= dict.fromkeys(set(users) - set(waiting), 1.0)
    while waiting:
        load: dict[str, int] = {}
        for links in waiting.values():
            for link in links:
                load[link] = load.get(link, 0) + 1
        tightest = min(load, key=lambda link: capacity[link] / load[link])
        share = capacity[tightest] / load[tightest]
        for user in [user for user, links in waiting.items() if tightest in links]:
            shares[user] = share
            for link in waiting.pop(user):
                capacity[link] = max(capacity[link] - share, 0.0)
    return shares


_OPERATOR_RATES = ("flop", "byte")


def slowed_beside(tasks: Tasks, seconds: Sequence[float]) -> Tasks:
    """Return the tasks, with the backward's operators slowed after its first all-reduce.

    The slowed share of each is the time of all all-reduces over that of these operators, 1 at most.
    """
    found = Tasks(list(tasks.all), list(tasks.step_ends))
    begin = 0
    for end in tasks.step_ends:
        _slow(found.all, range(begin, end), seconds)
        begin = end
    return found


def _slow(tasks: list[Task], step: range, seconds: Sequence[float]) -> None:
    sent = [i for i in step if tasks[i].role is Role.LINK and tasks[i].name == "all_reduce"]
    if not sent:
        return
    beside = [i for i in step if i > sent[0] and tasks[i].role is Role.COMPUTE and tasks[i].phase == Phase.BACKWARD]
    busy = sum(seconds[i] for i in beside)
    share = min(sum(seconds[i] for i in sent) / busy, 1.0) if busy else 0.0
    for i in beside:
        tasks[i] = replace(tasks[i], cost=_shared(tasks[i].cost, share))


def _shared(cost: dict[Rate, float], share: float) -> dict[Rate, float]:
    found: dict[Rate, float] = {}
    for rate, amount in cost.items():
        if rate[0] in _OPERATOR_RATES:
            found[rate] = amount * (1 - share)
            found["slowed", *rate] = amount * share
        else:
            found[rate] = amount
    return found
