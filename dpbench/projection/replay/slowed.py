"""Operators that run while a collective runs are slower, because it uses the device too. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from dpbench.projection.replay.tasks import Rate, Role, Task, Tasks
from dpbench.results.counts import Phase

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
