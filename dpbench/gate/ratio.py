"""Blocks of a round become two contrasts, and rounds become the ratio of head to base.

Pure.

    contrast   log head - (log base + log twin) / 2     its variance is 3/4 of that of log head - log base
    twin       log twin - log base                      the noise of this machine, in the same minutes

Each contrast is taken block by block between neighbours in time, so that a slower minute cancels. Head is compared
with base and its twin together, because two processes of base make a steadier reference than one. A round gives one
number for each benchmark. Processes differ more than the blocks of one process, so rounds are the sample.
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

Finite = Annotated[float, Field(allow_inf_nan=False)]


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
        return TimeRatio(value=exp(self.value), low=exp(self.low(0.025)), high=exp(self.high(0.025)))


class RoundRatio(BaseModel):
    """One benchmark in one round: two contrasts, as logarithms, and step times in seconds.

    `base_s` is the median over the blocks of base and its twin, `head_s` that over the blocks of head.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    contrast: Finite
    twin: Finite
    base_s: Finite
    head_s: Finite
    cores: str


def ratio_of(lockstep_round: LockstepRound) -> RoundRatio:
    """Reduce a round whose outcome is OK: of each contrast, the median over blocks."""
    logs = _block_logs(lockstep_round)
    base, twin, head = (logs[side] for side in (SideName.BASE, SideName.TWIN, SideName.HEAD))
    return RoundRatio(
        contrast=float(np.median(head - (base + twin) / 2)),
        twin=float(np.median(twin - base)),
        base_s=float(np.exp(np.median([base, twin]))),
        head_s=float(np.exp(np.median(head))),
        cores=lockstep_round.cores,
    )


def _block_logs(lockstep_round: LockstepRound) -> dict[SideName, NDArray[np.float64]]:
    """Logarithms of each block's mean step time.

    The mean, because a step may leave work to the next one, and that is part of its cost.
    """
    return {side: np.log([np.mean(block) for block in blocks]) for side, blocks in lockstep_round.times_s.items()}


def estimate(logs: Sequence[float]) -> LogEstimate:
    """Estimate the mean of one contrast from its logarithm in each round, two rounds or more."""
    return LogEstimate(fmean(logs), standard_error(logs), len(logs) - 1)
