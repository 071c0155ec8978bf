"""Blocks of a round become contrasts, and rounds become the ratio of head to base.

Pure.

    head   log head - (log base + log twin) / 2     its variance is 3/4 of that of log head - log base
    twin   log twin - log base                      the noise of this machine, in the same minutes

Head is compared with base and its twin together, because two processes of base make a steadier reference than one. Of
each side's steps three quantities are compared:

    median   of the blocks                     block by block between neighbours in time: a slower minute cancels
    mean     of all steps of the round         it sees what is costly in few steps, such as a garbage collection
    later    of the last quarter of blocks     over the first quarter: it sees what costs more with every step

A round gives one number of each for each benchmark. Processes differ more than the blocks of one process, so rounds are
the sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from statistics import fmean
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from dpbench.gate.judgement import TimeRatio
from dpbench.processes.messages import LockstepRound, SideName
from dpbench.stats.student import standard_error, t_quantile

PRINTED_RISK = 0.025
"""The risk at each end of a printed interval."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Blocks = Sequence[Sequence[float]]
"""The seconds of each step, block by block."""


@dataclass(frozen=True)
class LogEstimate:
    """The mean of logarithms, its standard error, and the error's degrees of freedom."""

    value: float
    error: float
    degrees: int

    def low(self, risk: float) -> float:
        """Return the lower bound that the true value is below with probability `risk`, 0 to 1."""
        return self.value - t_quantile(1 - risk, self.degrees) * self.error

    def high(self, risk: float) -> float:
        """Return the upper bound that the true value exceeds with probability `risk`, 0 to 1."""
        return self.value + t_quantile(1 - risk, self.degrees) * self.error

    def as_ratio(self) -> TimeRatio:
        """The ratio with its two-sided 95 % interval."""
        return TimeRatio(value=exp(self.value), low=exp(self.low(PRINTED_RISK)), high=exp(self.high(PRINTED_RISK)))


class Contrast(BaseModel):
    """One quantity in one round: the logarithms of head's and of the twin's ratio to base."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    head: Finite
    twin: Finite


class RoundRatio(BaseModel):
    """One benchmark in one round: contrasts, as logarithms, and step times in seconds.

    `contrast` and `twin` are those of the median block. `mean` and `later` are None if the round has too few blocks.
    `base_s` is the median over the blocks of base and its twin, `head_s` that over the blocks of head.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    contrast: Finite
    twin: Finite
    base_s: Finite
    head_s: Finite
    cores: str
    mean: Contrast | None = None
    later: Contrast | None = None

    @property
    def median(self) -> Contrast:
        return Contrast(head=self.contrast, twin=self.twin)


_LEAST_BLOCKS = 8
"""Fewer blocks have no quarters, and a mean that one disturbance decides."""
_QUARTER = 4


def ratio_of(lockstep_round: LockstepRound) -> RoundRatio:
    """Reduce a round whose outcome is OK."""
    sides = SideName.BASE, SideName.TWIN, SideName.HEAD
    base, twin, head = (_block_logs(lockstep_round.times_s[side]) for side in sides)
    heads, twins = head - (base + twin) / 2, twin - base
    has_quarters = len(head) >= _LEAST_BLOCKS
    base_mean, twin_mean, head_mean = (_log_mean(lockstep_round.times_s[side]) for side in sides)
    mean = Contrast(head=head_mean - (base_mean + twin_mean) / 2, twin=twin_mean - base_mean)
    return RoundRatio(
        contrast=float(np.median(heads)),
        twin=float(np.median(twins)),
        base_s=float(np.exp(np.median([base, twin]))),
        head_s=float(np.exp(np.median(head))),
        cores=lockstep_round.cores,
        mean=mean if has_quarters else None,
        later=Contrast(head=_growth(heads), twin=_growth(twins)) if has_quarters else None,
    )


def _block_logs(blocks: Blocks) -> NDArray[np.float64]:
    """Logarithms of each block's mean step time.

    The mean, because a step may leave work to the next one, and that is part of its cost.
    """
    return np.log([np.mean(block) for block in blocks])


def _log_mean(blocks: Blocks) -> float:
    return float(np.log(np.mean([step_s for block in blocks for step_s in block])))


def _growth(logs: NDArray[np.float64]) -> float:
    quarter = len(logs) // _QUARTER
    return float(np.median(logs[-quarter:]) - np.median(logs[:quarter]))


def estimate(logs: Sequence[float]) -> LogEstimate:
    """Estimate the mean of one contrast from its logarithm in each round, two rounds or more."""
    return LogEstimate(fmean(logs), standard_error(logs), len(logs) - 1)
