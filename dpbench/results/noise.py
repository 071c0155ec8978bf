"""What two equal cases, measured side by side, tell of a box. Pure."""

from dataclasses import dataclass

import numpy as np

from dpbench.results.stats import Estimate, Rounds, ratio_of_rounds, t_quantile

_Z90 = 1.2816  # nine in ten changes of the size told are found


@dataclass(frozen=True)
class Noise:
    """`spread` is the standard deviation of the medians of rounds, `detectable` the smallest slowdown that a comparison
    of as many rounds finds nine times in ten: that its 95 % interval excludes no change. Both are shares, 0.01 is 1 %.
    """

    ratio: Estimate
    spread: float
    detectable: float
    rounds: int

    @property
    def looks_unequal(self) -> bool:
        """What happens one time in twenty on a sound box."""
        return self.ratio.low is not None and self.ratio.high is not None and not self.ratio.low <= 1 <= self.ratio.high


def noise_of(first: Rounds, second: Rounds) -> Noise:
    """From rounds of the same case, taken in turn, equally many and at least two of each."""
    rounds = len(first)
    if rounds < 2 or len(second) != rounds:
        raise ValueError(f"noise needs as many rounds of both, two or more; there are {rounds} and {len(second)}")
    variances = [float(np.var(np.log([np.median(samples) for samples in each]), ddof=1)) for each in (first, second)]
    spread = float(np.sqrt(np.mean(variances)))
    error = spread * np.sqrt(2 / rounds)
    detectable = float(np.expm1((t_quantile(2 * rounds - 2) + _Z90) * error))
    return Noise(ratio_of_rounds(first, second), float(np.expm1(spread)), detectable, rounds)
