"""The rules that end warm-up and sampling. All ranks get the same numbers, so they stop at the same step.

Neighbouring steps are correlated, so an interval for independent samples would end the sampling too early.

Measured on 300 simulated series for each row (log-normal, sd 3 %, width 1 %, at most 2,000 samples): the share of final
intervals that hold the true median, and the median number of samples. `independent` is computed after each sample.

    correlation of neighbours     here           independent
    0                             96 %    318    92 %    197
    0.9                           88 %  2,000    32 %    128
    0.97                          87 %  2,000    13 %     40
    0.99                          72 %  2,000    10 %     20
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from statistics import median

import numpy as np

from dpbench.judge.intervals import LEAST_AUTOCORRELATED, interval_of_autocorrelated_median
from dpbench.judge.least_samples import LEAST_S, MOST_S, are_enough

_WINDOW = 5
_GROWTH = 1.125
_UNKNOWN_TRIALS = 16
"""Warm-up of a wrapper that does not report its trials: it tries at most three ways four times each."""
_SETTLED_AFTER_S = 60.0


class NotSettledError(Exception):
    """The scheme still tries something after a minute and twice the steps that its trials need."""


@dataclass
class WarmUp:
    """Ends without trials, when the last five steps are not clearly faster than before, or after `max_s`.

    `trials_left` returns None if the scheme does not report them. `settled_s` is the least time without trials.
    """

    max_s: float
    trials_left: Callable[[], int | None] = lambda: 0
    settled_s: float = 0.0
    tolerance: float = 0.02
    steps: int = 0
    _times_s: list[float] = field(default_factory=list)
    _elapsed_s: float = 0.0
    _trial_steps: int | None = None
    _settled_at_s: float | None = None

    def add(self, step_s: float, elapsed_s: float) -> None:
        """`elapsed_s` is the time since the warm-up began; raises NotSettledError."""
        self.steps += 1
        self._elapsed_s = elapsed_s
        self._times_s = [*self._times_s[1 - 2 * _WINDOW :], step_s]
        left = self.trials_left()
        if left is None:
            left = max(0, _UNKNOWN_TRIALS - self.steps)
        if self._trial_steps is None:
            self._trial_steps = self.steps + left
        if left:
            self._settled_at_s = None
        elif self._settled_at_s is None:
            self._settled_at_s = elapsed_s
        if left and elapsed_s >= _SETTLED_AFTER_S and self.steps >= 2 * self._trial_steps:
            raise NotSettledError(
                f"the scheme is not settled after {self.steps} steps and {elapsed_s:.0f} s: it reports {left} more "
                f"trials; at first it reported {self._trial_steps}"
            )

    @property
    def done(self) -> bool:
        if self.steps < 2 or self._settled_at_s is None:
            return False  # the first step fills caches, so there must be a second one
        if self._elapsed_s - self._settled_at_s < self.settled_s:
            return False
        return self._elapsed_s >= self.max_s or self._is_steady

    @property
    def _is_steady(self) -> bool:
        if len(self._times_s) < 2 * _WINDOW:
            return False
        before, last = median(self._times_s[:_WINDOW]), median(self._times_s[_WINDOW:])
        return last >= before * (1 - self.tolerance)


@dataclass
class StopRule:
    """Ends sampling when the median's 95 % interval is narrower than `width` times it, or after `max_s`.

    The interval is computed again at an eighth more samples: after each sample it would be narrow by chance. Before the
    least samples (`judge/least_samples.py`), of `least_s` seconds, sampling ends only after `MOST_S`.
    """

    max_s: float
    least_s: float = LEAST_S
    width: float = 0.01
    min_samples: int = 50
    samples_s: list[float] = field(default_factory=list)
    stopped_by: str | None = None
    _next_check: int = field(init=False)

    def __post_init__(self) -> None:
        self._next_check = max(self.min_samples, LEAST_AUTOCORRELATED)

    def add(self, step_s: float, elapsed_s: float) -> None:
        """`elapsed_s` is the time since sampling began."""
        self.samples_s.append(step_s)
        if len(self.samples_s) >= self._next_check:
            self._next_check = ceil(len(self.samples_s) * _GROWTH)
            low, middle, high = interval_of_autocorrelated_median(np.array(self.samples_s))
            if high - low <= self.width * middle and are_enough(self.samples_s, self.least_s):
                self.stopped_by = "interval"
                return
        if elapsed_s >= max(self.max_s, MOST_S) or (
            elapsed_s >= self.max_s and are_enough(self.samples_s, self.least_s)
        ):
            self.stopped_by = "budget"
