"""Choose by measuring: try each choice in turn a few times, then keep the first or one that is clearly faster."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

Choice = TypeVar("Choice")

TRIES = 4
"""Measurements of each choice.

The first of each does not count: it starts threads and warms caches.
"""
LEAST_GAIN = 0.05
"""Another choice replaces the first one only if it takes less time by more than this part. Less may be noise."""


def choose(least_s: Mapping[Choice, float]) -> Choice:
    """The fastest choice, by the least seconds of each, if its gain is above `LEAST_GAIN`; else the first choice."""
    usual, fastest = next(iter(least_s)), min(least_s, key=least_s.__getitem__)
    return fastest if least_s[fastest] < (1 - LEAST_GAIN) * least_s[usual] else usual


class Autotuner(Generic[Choice]):
    """Gives the next choice to try, and fixes one after `TRIES` times of each. The first choice is the usual one."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        self._times_s: dict[Choice, list[float]] = {choice: [] for choice in choices}
        self.chosen: Choice | None = None

    @property
    def trials_left(self) -> int:
        """The number of further measurements until a choice is fixed."""
        if self.chosen is not None:
            return 0
        return sum(max(0, TRIES - len(times)) for times in self._times_s.values())

    def next_choice(self) -> Choice:
        """The fixed choice if there is one, else the choice that was measured least often."""
        if self.chosen is not None:
            return self.chosen
        return min(self._times_s, key=lambda choice: len(self._times_s[choice]))

    @contextmanager
    def timed(self, choice: Choice) -> Iterator[None]:
        """Add the time of the block to the choice, unless the block raises."""
        start_s = time.perf_counter()
        yield
        self.add(choice, time.perf_counter() - start_s)

    def add(self, choice: Choice, time_s: float) -> None:
        """Add one time; fix a choice when each has enough."""
        if self.chosen is None:
            self._times_s[choice].append(time_s)
            if all(len(times) >= TRIES for times in self._times_s.values()):
                # The shortest of a few times is the one with the least disturbance.
                self.chosen = choose({choice: min(times[1:]) for choice, times in self._times_s.items()})

    def fix(self, choice: Choice) -> None:
        """Fix the choice for good, whatever the measured times."""
        self.chosen = choice
