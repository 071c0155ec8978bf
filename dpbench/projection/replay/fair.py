"""The end of a step if copies share links fairly, instead of one after the other. Pure.

Each copy that is under way gets the max-min fair share of its links (Bertsekas and Gallager, Data Networks, 6.5.2)::

    link A  |-- copy 1 alone --|-- copy 1, half --|-- copy 2 alone --|
                               |-- copy 2, half --|

The time of a copy alone on its links is known, so a link's capacity is one: a copy that would need 2 s alone and gets a
half takes 4 s. All other tasks hold their resources as in `fifo.py`.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence

from dpbench.projection.replay.fifo import Schedule
from dpbench.projection.replay.tasks import Role, Tasks

_DONE_S = 1e-12


def fair_finish_s(tasks: Tasks, schedule: Schedule, seconds: Sequence[float]) -> float:
    """Return when the last task ends, in seconds. Resources that are not links keep the order of `schedule`."""
    run = _Run(tasks, schedule, seconds)
    return run.finish()


class _Run:
    def __init__(self, tasks: Tasks, schedule: Schedule, seconds: Sequence[float]) -> None:
        self._tasks, self._seconds = tasks, seconds
        self._users: list[list[int]] = [[] for _ in seconds]
        self._missing = [0] * len(seconds)
        self._left: dict[int, float] = {}
        self._rates: dict[int, float] = {}
        self._ends: list[tuple[float, int]] = []
        self._now, self._is_changed = 0.0, False
        for i, task in enumerate(tasks.all):
            before = set(task.before) | ({*schedule.follows[i]} if task.role is not Role.LINK else set())
            self._missing[i] = len(before)
            for earlier in before:
                self._users[earlier].append(i)

    def finish(self) -> float:
        """Run all tasks, and return the end of the last one."""
        self._start(i for i, count in enumerate(self._missing) if count == 0)
        self._share_links()
        while self._ends or self._left:
            at = self._ends[0][0] if self._ends else float("inf")
            copy_ends = min((left / self._rates[i] for i, left in self._left.items()), default=float("inf"))
            at = min(at, self._now + copy_ends)
            self._advance(at)
            ended = [i for i, left in self._left.items() if left <= _DONE_S * max(1.0, self._now)]  # rounding errors
            for i in ended:
                del self._left[i]
                self._is_changed = True
            while self._ends and self._ends[0][0] <= self._now:
                ended.append(heapq.heappop(self._ends)[1])
            self._release(ended)
            self._share_links()
        return self._now

    def _advance(self, at: float) -> None:
        for i in self._left:
            self._left[i] -= (at - self._now) * self._rates[i]
        self._now = at

    def _release(self, ended: Iterable[int]) -> None:
        ready = []
        for i in ended:
            for user in self._users[i]:
                self._missing[user] -= 1
                if not self._missing[user]:
                    ready.append(user)
        self._start(ready)

    def _start(self, ready: Iterable[int]) -> None:
        for i in ready:
            if self._tasks.all[i].role is Role.LINK and self._seconds[i] > _DONE_S:
                self._left[i] = self._seconds[i]
                self._is_changed = True
            else:
                heapq.heappush(self._ends, (self._now + self._seconds[i], i))

    def _share_links(self) -> None:
        if self._is_changed:
            self._rates = fair_shares({i: self._tasks.all[i].resources for i in self._left})
            self._is_changed = False


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
