"""From the blocks of a round to one number, and from rounds to the ratio of head to base. Pure.

A round is one number a benchmark: processes differ more than blocks in one, so that rounds are what is counted. Blocks
that were neighbours in time are held against each other. Base runs twice in each, and head is held against both: the
reference then varies less, and what base differs by from itself, the twin's ratio, tells what this machine makes of
identical code in the very same minutes.

    contrast   log head - (log base + log twin) / 2     in variance 3/4 of head against base alone
    twin       log twin - log base
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
from dpbench.run.messages import LockstepRound, SideName
from dpbench.stats.student import standard_error, t_quantile

Finite = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True)
class LogEstimate:
    """Of a mean of logarithms: its value, its standard error, and the degrees of freedom of that."""

    value: float
    error: float
    degrees: int

    def low(self, risk: float) -> float:
        """What the true value is below of with probability `risk`, 0 to 1."""
        return self.value - t_quantile(1 - risk, self.degrees) * self.error

    def high(self, risk: float) -> float:
        return self.value + t_quantile(1 - risk, self.degrees) * self.error

    def as_ratio(self) -> TimeRatio:
        return TimeRatio(value=exp(self.value), low=exp(self.low(0.025)), high=exp(self.high(0.025)))


class RoundRatio(BaseModel):
    """What one round tells of one benchmark: the two contrasts, and the seconds a step takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contrast: Finite
    twin: Finite
    base_s: Finite
    head_s: Finite
    cores: str


def ratio_of(found: LockstepRound) -> RoundRatio:
    """Of a round with outcome ok."""
    logs = _block_logs(found)
    base, twin, head = (logs[side] for side in (SideName.BASE, SideName.TWIN, SideName.HEAD))
    return RoundRatio(
        contrast=float(np.median(head - (base + twin) / 2)),
        twin=float(np.median(twin - base)),
        base_s=float(np.exp(np.median([base, twin]))),
        head_s=float(np.exp(np.median(head))),
        cores=found.cores,
    )


def _block_logs(found: LockstepRound) -> dict[SideName, NDArray[np.float64]]:
    """Of a block the mean, as what a step leaves to the next is its too; of the blocks, later, the median."""
    return {side: np.log([np.mean(block) for block in blocks]) for side, blocks in found.times_s.items()}


def estimate(logs: Sequence[float]) -> LogEstimate:
    """Of at least two rounds."""
    return LogEstimate(fmean(logs), standard_error(logs), len(logs) - 1)
