"""The phases of a case's step, its skew and its ranks' lags, over the rounds. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dpbench.results.readings import OverRounds, Reading, over_rounds
from dpbench.results.record import Metrics

_ABSENT = "the record does not have it"


@dataclass(frozen=True)
class PhaseSummary:
    """Seconds of a step by phase.

    `skew_s` is the slowest rank's time minus the fastest's: the median over rounds of each round's median. `rank_lag_s`
    has each rank's time minus the fastest's. Both are of a step: a sample's, divided by its steps. With one process,
    `skew_s` is None and `rank_lag_s` is empty.
    """

    phases_s: Mapping[str, OverRounds]
    skew_s: OverRounds | None
    rank_lag_s: tuple[OverRounds, ...]

    @property
    def slowest_rank(self) -> int | None:
        """The rank with the largest lag; None without ranks."""
        lags = {rank: lag.value for rank, lag in enumerate(self.rank_lag_s) if lag.value is not None}
        return max(lags, key=lambda rank: lags[rank]) if lags else None


def summarise_phases(rounds: Sequence[Metrics], steps_per_sample: int = 1) -> PhaseSummary:
    """Return the summary of all rounds of one case."""
    names = dict.fromkeys(name for one in rounds for name in one.phases_s or {})
    skews = [one.skew_s for one in rounds if one.skew_s]
    ranks = max((len(one.rank_lag_s or ()) for one in rounds), default=0)
    return PhaseSummary(
        phases_s={name: over_rounds([_phase(name, one) for one in rounds]) for name in names},
        skew_s=over_rounds([Reading(value=median(each) / steps_per_sample) for each in skews]) if skews else None,
        rank_lag_s=tuple(over_rounds([_lag(rank, one, steps_per_sample) for one in rounds]) for rank in range(ranks)),
    )


def _phase(name: str, one: Metrics) -> Reading:
    found = (one.phases_s or {}).get(name, _ABSENT)
    return Reading(reason=found) if isinstance(found, str) else Reading(value=found)


def _lag(rank: int, one: Metrics, steps_per_sample: int) -> Reading:
    lags = one.rank_lag_s or ()
    return Reading(value=lags[rank] / steps_per_sample) if rank < len(lags) else Reading(reason=_ABSENT)
