"""Choose by measuring: try each way in turn a few times, then keep the one that was fastest."""

import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

Way = TypeVar("Way")

TRIES = 4
"""Of each way. The first of each is not counted: it starts threads and warms caches."""


class Trial(Generic[Way]):
    """One choice: fed times, answers which way to go next."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self._times_s: dict[Way, list[float]] = {way: [] for way in ways}
        self._chosen: Way | None = None

    def next_way(self) -> Way:
        if self._chosen is not None:
            return self._chosen
        return min(self._times_s, key=lambda way: len(self._times_s[way]))

    def add(self, way: Way, time_s: float) -> None:
        if self._chosen is None:
            self._times_s[way].append(time_s)
            if all(len(times) >= TRIES for times in self._times_s.values()):
                # The fastest of a few is the least disturbed one.
                self._chosen = min(self._times_s, key=lambda way: min(self._times_s[way][1:]))


class Trials(Generic[Way]):
    """A choice of its own for every kind of call."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self._ways = ways
        self._trials: dict[Hashable, Trial[Way]] = {}

    @contextmanager
    def choose(self, kind: Hashable) -> Iterator[Way]:
        """The way to go this time; the block's time counts for it, unless it raises."""
        trial = self._trials.setdefault(kind, Trial(self._ways))
        way = trial.next_way()
        start_s = time.perf_counter()
        yield way
        trial.add(way, time.perf_counter() - start_s)
