"""Choose by measuring: try each way in turn a few times, then keep the one that was fastest."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

Way = TypeVar("Way")

TRIES = 4
"""Of each way. The first of each is not counted: it starts threads and warms caches."""


class Autotuner(Generic[Way]):
    """One choice: fed times, answers which way to go next."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self._times_s: dict[Way, list[float]] = {way: [] for way in ways}
        self.chosen: Way | None = None

    def next_choice(self) -> Way:
        if self.chosen is not None:
            return self.chosen
        return min(self._times_s, key=lambda way: len(self._times_s[way]))

    @contextmanager
    def timed(self, way: Way) -> Iterator[None]:
        """The block's time counts for the way, unless it raises."""
        start_s = time.perf_counter()
        yield
        self.add(way, time.perf_counter() - start_s)

    def add(self, way: Way, time_s: float) -> None:
        if self.chosen is None:
            self._times_s[way].append(time_s)
            if all(len(times) >= TRIES for times in self._times_s.values()):
                # The fastest of a few is the least disturbed one.
                self.chosen = min(self._times_s, key=lambda way: min(self._times_s[way][1:]))

    def settle(self, way: Way) -> None:
        """Whatever the times say, for good."""
        self.chosen = way
