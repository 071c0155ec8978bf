"""When to stop warming up and when to stop sampling: pure rules, fed numbers.

Every rank of a multi-process case is fed the same numbers, so all come to the same answer unasked.
"""

from bisect import insort
from dataclasses import dataclass, field
from math import ceil, floor, sqrt
from statistics import median

_WINDOW = 5
_Z95 = 1.959964


@dataclass
class WarmUp:
    """Settled when the median of the last five steps is no longer clearly below that of the five before."""

    max_s: float
    tolerance: float = 0.02
    steps: int = 0
    _times_s: list[float] = field(default_factory=list)
    _elapsed_s: float = 0.0

    def add(self, step_s: float, elapsed_s: float) -> None:
        """Take one step's time, and the time since warming up began."""
        self.steps += 1
        self._elapsed_s = elapsed_s
        self._times_s = [*self._times_s[1 - 2 * _WINDOW :], step_s]

    @property
    def done(self) -> bool:
        if self.steps < 2:
            return False  # the first step builds caches; a later one must have run
        return self._elapsed_s >= self.max_s or self._settled

    @property
    def _settled(self) -> bool:
        if self.steps < 2 * _WINDOW:
            return False
        before, last = median(self._times_s[:_WINDOW]), median(self._times_s[_WINDOW:])
        return last >= before * (1 - self.tolerance)


@dataclass
class StopRule:
    """Enough when the 95 % interval of the median is narrower than `width` of it, or `max_s` are over.

    The interval is that of the order statistics around the middle (binomial, normal approximation).
    It describes this one process; how processes differ is what rounds are for.
    """

    max_s: float
    width: float = 0.01
    min_samples: int = 20
    samples_s: list[float] = field(default_factory=list)
    _sorted_s: list[float] = field(default_factory=list)
    _elapsed_s: float = 0.0

    def add(self, step_s: float, elapsed_s: float) -> None:
        """Take one sample, and the time since sampling began."""
        self.samples_s.append(step_s)
        insort(self._sorted_s, step_s)
        self._elapsed_s = elapsed_s

    @property
    def stopped_by(self) -> str | None:
        """``interval`` or ``budget``, None while more samples are wanted."""
        if self._narrow:
            return "interval"
        return "budget" if self.samples_s and self._elapsed_s >= self.max_s else None

    @property
    def _narrow(self) -> bool:
        n = len(self._sorted_s)
        if n < self.min_samples:
            return False
        half = _Z95 * sqrt(n) / 2
        low = self._sorted_s[max(0, floor((n - 1) / 2 - half))]
        high = self._sorted_s[min(n - 1, ceil((n - 1) / 2 + half))]
        return high - low <= self.width * self._sorted_s[n // 2]
