"""The rules that end warm-up and sampling.

They are pure: they get numbers and measure nothing. All ranks of a case get the same numbers, so their rules stop at
the same step without any communication.

Neighbouring steps are correlated: a clock rises, another process comes and goes. An interval for independent samples is
then too narrow, and would end the sampling too early. So the interval is that of an autocorrelated median; its rule is
in `dpbench/stats/order_statistics.py`.

Measured on 300 simulated series for each row (log-normal, sd 3 %, width 1 %, at most 2,000 samples): the share of final
intervals that hold the true median, and the median number of samples. `independent` is the interval for independent
samples, computed after each sample.

    correlation of neighbours     here           independent
    0                             96 %    318    92 %    197
    0.9                           88 %  2,000    32 %    128
    0.97                          87 %  2,000    13 %     40
    0.99                          72 %  2,000    10 %     20

Rounds cover a machine that changes more slowly than one process runs. nvbench's `stdrel` stops when the noise is small
or steady. Its `entropy` stops when the distribution is steady (nvbench/detail/stdrel_criterion.cxx and
entropy_criterion.cxx). Neither says how well the median is known, and the median is what dpbench reports.
"""

from dataclasses import dataclass, field
from math import ceil
from statistics import median

import numpy as np

from dpbench.stats.order_statistics import LEAST_AUTOCORRELATED, interval_of_autocorrelated_median

_WINDOW = 5
_LEAST_STEPS = 12
"""The tuned wrapper tries three ways of dispatch four times each."""
_GROWTH = 1.125


@dataclass
class WarmUp:
    """Ends warm-up when the last five steps are not clearly faster than the five before."""

    max_s: float
    tolerance: float = 0.02
    steps: int = 0
    _times_s: list[float] = field(default_factory=list)
    _elapsed_s: float = 0.0

    def add(self, step_s: float, elapsed_s: float) -> None:
        """Add one step's seconds. `elapsed_s` is the time since the warm-up began."""
        self.steps += 1
        self._elapsed_s = elapsed_s
        self._times_s = [*self._times_s[1 - 2 * _WINDOW :], step_s]

    @property
    def done(self) -> bool:
        if self.steps < 2:
            return False  # the first step fills caches, so there must be a second one
        return self._elapsed_s >= self.max_s or self._settled

    @property
    def _settled(self) -> bool:
        if self.steps < _LEAST_STEPS:
            return False
        before, last = median(self._times_s[:_WINDOW]), median(self._times_s[_WINDOW:])
        return last >= before * (1 - self.tolerance)


@dataclass
class StopRule:
    """Ends sampling when the median is known well enough, or after `max_s`.

    Well enough: its 95 % interval is narrower than `width` times the median. The interval is computed again only when
    there are an eighth more samples. After each sample it would cost time that grows with their number, and a narrow
    interval by chance would end the sampling. The interval describes one process.
    """

    max_s: float
    width: float = 0.01
    min_samples: int = 50
    samples_s: list[float] = field(default_factory=list)
    stopped_by: str | None = None
    _next_check: int = field(init=False)

    def __post_init__(self) -> None:
        self._next_check = max(self.min_samples, LEAST_AUTOCORRELATED)

    def add(self, step_s: float, elapsed_s: float) -> None:
        """Add one sample. `elapsed_s` is the time since sampling began.

        Afterwards `stopped_by` is ``interval``, ``budget`` or None.
        """
        self.samples_s.append(step_s)
        if len(self.samples_s) >= self._next_check:
            self._next_check = ceil(len(self.samples_s) * _GROWTH)
            low, middle, high = interval_of_autocorrelated_median(np.array(self.samples_s))
            if high - low <= self.width * middle:
                self.stopped_by = "interval"
                return
        if elapsed_s >= self.max_s:
            self.stopped_by = "budget"
