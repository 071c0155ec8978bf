"""The phases of a case's step, its skew and its ranks' lags, over the rounds. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dpbench.records.counts import Phase
from dpbench.records.readings import OverRounds, over_values
from dpbench.records.record import Metrics

_ABSENT = "the record does not have it"
STEP_PHASES = tuple(map(str, Phase))


@dataclass(frozen=True)
class PhaseSummary:
    """Seconds of a step by phase. With several processes `phases_s` is of rank 0.

    `skew_s` is the slowest rank's time minus the fastest's: the median over rounds of each round's median. `rank_lag_s`
    has each rank's time minus the fastest's. `machine_skew_s` is the slowest machine's lag minus the fastest's; a
    machine is as late as its slowest rank. All are of a step: a sample's, divided by its steps. With one process,
    `skew_s` is None, `rank_lag_s` and `phases_by_rank_s` are empty. With one machine, `machine_skew_s` is None.
    `longest_step_s` is the step's median with its spread.
    """

    phases_s: Mapping[str, OverRounds]
    skew_s: OverRounds | None
    rank_lag_s: tuple[OverRounds, ...]
    phases_by_rank_s: tuple[Mapping[str, OverRounds], ...] = ()
    machine_skew_s: OverRounds | None = None
    longest_step_s: float | None = None

    @property
    def disagreeing(self) -> tuple[str, ...]:
        """The phases that are longer than the step. Extra steps took them, so they say nothing about the timed ones."""
        most_s = self.longest_step_s
        times = {name: each.value for name, each in self.phases_s.items() if name in STEP_PHASES}
        return tuple(
            name for name, value in times.items() if value is not None and most_s is not None and value > most_s
        )

    @property
    def slowest_rank(self) -> int | None:
        """The rank with the largest lag; None without ranks."""
        lags = {rank: lag.value for rank, lag in enumerate(self.rank_lag_s) if lag.value is not None}
        return max(lags, key=lambda rank: lags[rank]) if lags else None

    @property
    def slowest_phases_s(self) -> Mapping[str, OverRounds] | None:
        """The phases of the slowest rank, or None if the records do not have them."""
        rank = self.slowest_rank
        return self.phases_by_rank_s[rank] if rank is not None and rank < len(self.phases_by_rank_s) else None


def summarise_phases(
    rounds: Sequence[Metrics], steps_per_sample: int = 1, machines: int = 1, longest_step_s: float | None = None
) -> PhaseSummary:
    """Return the summary of all rounds of one case. Its ranks are divided evenly among the machines, in order."""
    skews = [one.skew_s for one in rounds if one.skew_s]
    ranks = max((len(one.rank_lag_s or ()) for one in rounds), default=0)
    by_rank = [one.phases_by_rank_s for one in rounds if one.phases_by_rank_s]
    lags = [one.rank_lag_s for one in rounds if one.rank_lag_s] if machines > 1 else []
    return PhaseSummary(
        phases_s=_over_rounds([one.phases_s or {} for one in rounds]),
        skew_s=over_values([median(skew) / steps_per_sample for skew in skews]) if skews else None,
        rank_lag_s=tuple(over_values([_lag(rank, one, steps_per_sample) for one in rounds]) for rank in range(ranks)),
        phases_by_rank_s=tuple(map(_over_rounds, zip(*by_rank, strict=True))),
        machine_skew_s=over_values([_machine_skew(lag, machines) / steps_per_sample for lag in lags]) if lags else None,
        longest_step_s=longest_step_s,
    )


def _machine_skew(rank_lag_s: Sequence[float], machines: int) -> float:
    size = len(rank_lag_s) // machines
    of_machines = [max(rank_lag_s[first : first + size]) for first in range(0, size * machines, size)]
    return max(of_machines) - min(of_machines)


def _over_rounds(rounds: Sequence[Mapping[str, float | str]]) -> dict[str, OverRounds]:
    """Return each phase that any round has, over all rounds."""
    names = dict.fromkeys(name for one in rounds for name in one)
    return {name: over_values([one.get(name, _ABSENT) for one in rounds]) for name in names}


def _lag(rank: int, one: Metrics, steps_per_sample: int) -> float | str:
    lags = one.rank_lag_s or ()
    return lags[rank] / steps_per_sample if rank < len(lags) else _ABSENT
