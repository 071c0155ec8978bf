"""Which scheme of a comparison is the fastest, and which others may be as fast. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf, log

from dpbench.cases.variants import VariantId, VariantName
from dpbench.records.compare import LIMITS, Comparison
from dpbench.records.summary import Summary
from dpbench.stats.rounds import Estimate, ratio_of_rounds

MOST_ROUNDS = 200


@dataclass(frozen=True)
class Winner:
    """The fastest scheme.

    `slower` has the time of every other scheme over the winner's, in order of time. A scheme is a rival if the
    interval of that ratio contains 1, or if there is no interval because a scheme has one round only. `alone` is the
    winner's time over that of one device with the whole batch, None if that was not measured.
    """

    best: Summary
    slower: Mapping[VariantId, Estimate]
    alone: Estimate | None = None

    @property
    def rivals(self) -> tuple[VariantId, ...]:
        return tuple(variant for variant, ratio in self.slower.items() if not is_above_one(ratio))

    @property
    def is_decided(self) -> bool:
        return not self.rivals

    @property
    def is_slower_than_one_device(self) -> bool:
        """Whether one device is faster than every scheme, for sure."""
        return self.alone is not None and is_above_one(self.alone)

    @property
    def is_faster_than_one_device(self) -> bool:
        """Whether the fastest scheme is faster than one device, for sure."""
        return self.alone is not None and self.alone.high is not None and self.alone.high < 1


def winner_of(comparison: Comparison) -> Winner | None:
    """Return the scheme with the shortest step, or None if no scheme has times that can be ranked."""
    ranked = [row.summary for row in comparison.rows if row.summary.step_times_s and not row.summary.thin_rounds]
    schemes = [each for each in ranked if each.case.variant.name not in LIMITS]
    timed = sorted(schemes, key=lambda each: each.step_time_s.value if each.step_time_s else inf)
    if not timed:
        return None
    best = timed[0]
    slower = {each.case.variant: ratio_of_rounds(each.step_times_s, best.step_times_s) for each in timed[1:]}
    single = next((each for each in ranked if each.case.variant.name is VariantName.SINGLE), None)
    alone = ratio_of_rounds(best.step_times_s, single.step_times_s) if single else None
    return Winner(best, slower, alone)


def is_above_one(ratio: Estimate) -> bool:
    """Return whether the whole interval is above 1."""
    return ratio.low is not None and ratio.low > 1


def rounds_to_decide(ratio: Estimate, rounds: int) -> int | None:
    """Return about how many rounds would put 1 outside of the interval.

    None if the ratio is so near to 1 that over 200 would be needed, or if it has no interval. The interval's length
    falls with the square root of the rounds.
    """
    if ratio.low is None or ratio.high is None or ratio.value <= 1:
        return None
    half = log(ratio.high / ratio.low) / 2
    needed = max(ceil(rounds * (half / log(ratio.value)) ** 2), rounds + 1)
    return needed if needed <= MOST_ROUNDS else None
