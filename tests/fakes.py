"""Stand-ins for the project's seams: the clock, the team of processes and the launcher."""

from collections.abc import Iterable, Iterator


class ScriptedClock:
    """A clock whose every reading is written down before; `advance` is what a fake step does."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def __call__(self) -> float:
        return self.time_s

    def advance(self, seconds: float) -> None:
        self.time_s += seconds


class ScriptedSteps:
    """A step that takes the next of the given times, the last one for ever."""

    def __init__(self, clock: ScriptedClock, times_s: Iterable[float]) -> None:
        self._clock = clock
        self._times_s: Iterator[float] = iter(times_s)
        self._last_s = 0.0
        self.taken = 0

    def __call__(self) -> None:
        self._last_s = next(self._times_s, self._last_s)
        self._clock.advance(self._last_s)
        self.taken += 1


class FakeTeam:
    """A team whose other rank is slower by `lag_s` on every step."""

    rank = 0
    size = 2

    def __init__(self, lag_s: float) -> None:
        self._lag_s = lag_s

    def line_up(self) -> None:
        pass

    def slowest(self, step_s: float, elapsed_s: float) -> tuple[float, float, float]:
        return step_s + self._lag_s, self._lag_s, elapsed_s
