"""A step's phases over a case's rounds: times, parts that add up to the step, and ranks' lags."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import zip_longest
from statistics import median

from dpbench.analysis.over_rounds import ABSENT, OverRounds, over_values
from dpbench.records.record import Metrics

PARTS_OF = {
    "forward": ("scatter", "replicate", "parallel_apply", "gather", "loss"),
    "backward": ("reduce",),
    "optimiser": (),
}
MOVES = " + moves"
_MOVES = ("scatter", "replicate", "gather", "reduce")


class Work(StrEnum):
    COMPUTE = "compute"
    MOVE = "move data"
    BOTH = "compute and move data"


@dataclass(frozen=True)
class PhasePart:
    """`forward` and `backward` are without their other parts. Work.BOTH is a whole phase whose moves are not known
    apart, such as ddp's backward.
    """

    name: str
    work: Work
    time_s: float

    @property
    def label(self) -> str:
        """Such as ``backward + moves``."""
        return f"{self.name}{MOVES}" if self.work is Work.BOTH else self.name


@dataclass(frozen=True)
class Saving:
    """Where one variant saves most time against another."""

    name: str
    time_s: float
    other_s: float

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole phase that has parts."""
        return bool(PARTS_OF.get(self.name))

    @property
    def saved_s(self) -> float:
        return self.other_s - self.time_s


@dataclass(frozen=True)
class PhaseSummary:
    """Seconds of a step; `phases_s` is of rank 0, `longest_step_s` the step with its spread.

    `skew_s` is the slowest rank's time minus the fastest's: the median over rounds of each round's median. `rank_lag_s`
    has each rank's time minus the fastest's. In `machine_skew_s` a machine is as late as its slowest rank. Skews are
    None with one process or machine.
    """

    phases_s: Mapping[str, OverRounds]
    skew_s: OverRounds | None = None
    rank_lag_s: tuple[OverRounds, ...] = ()
    phases_by_rank_s: tuple[Mapping[str, OverRounds], ...] = ()
    machine_skew_s: OverRounds | None = None
    longest_step_s: float | None = None

    @cached_property
    def times_s(self) -> Mapping[str, float]:
        """The phases that have a time."""
        return {name: figure.value for name, figure in self.phases_s.items() if figure.value is not None}

    @property
    def disagreeing(self) -> tuple[str, ...]:
        """Phases longer than the step, because extra steps took them."""
        return self.longer_than_the_step(self.phases_s)

    def longer_than_the_step(self, phases_s: Mapping[str, OverRounds]) -> tuple[str, ...]:
        """Whole phases that are longer than the step with its spread."""
        most_s, times = self.longest_step_s, {name: phases_s[name].value for name in PARTS_OF if name in phases_s}
        return tuple(name for name, time_s in times.items() if time_s and most_s is not None and time_s > most_s)

    @property
    def slowest_rank(self) -> int | None:
        """None without ranks."""
        lags = {rank: lag.value for rank, lag in enumerate(self.rank_lag_s) if lag.value is not None}
        return max(lags, key=lambda rank: lags[rank]) if lags else None

    @property
    def slowest_phases_s(self) -> Mapping[str, OverRounds] | None:
        """None if the records do not have them."""
        rank = self.slowest_rank
        return self.phases_by_rank_s[rank] if rank is not None and rank < len(self.phases_by_rank_s) else None

    def parts(self, devices: int = 1) -> tuple[PhasePart, ...]:
        """Empty if forward has no time. `devices` is how many the case has."""
        times = self.times_s
        if "forward" not in times:
            return ()
        rest = Work.BOTH if devices > 1 and not any(name in times for name in _MOVES) else Work.COMPUTE
        return tuple(part for phase in PARTS_OF if phase in times for part in _parts(phase, times, rest))

    def largest_saving(self, other: "PhaseSummary") -> Saving | None:
        """None if nowhere. A part stands for its whole phase if it has at least half of the saving."""
        others_s = other.times_s
        both = [Saving(name, time_s, others_s[name]) for name, time_s in self.times_s.items() if name in others_s]
        both.sort(key=lambda saving: saving.saved_s, reverse=True)
        whole, part = (
            next((saving for saving in both if (saving.name in PARTS_OF) is is_whole), None)
            for is_whole in (True, False)
        )
        if part is not None and (whole is None or part.saved_s >= whole.saved_s / 2):
            whole = part
        return whole if whole is not None and whole.saved_s > 0 else None


def share_of_moves(parts: Sequence[PhasePart]) -> float | None:
    """A share of the step; None if no move is known."""
    moves = [part.time_s for part in parts if part.work is Work.MOVE]
    total = sum(part.time_s for part in parts)
    return sum(moves) / total if moves and total > 0 else None


def _parts(phase: str, times: Mapping[str, float], rest_is: Work) -> list[PhasePart]:
    named = [
        PhasePart(name, Work.MOVE if name in _MOVES else Work.COMPUTE, times[name])
        for name in PARTS_OF[phase]
        if name in times
    ]
    rest = max(times[phase] - sum(part.time_s for part in named), 0.0)
    return [*named, PhasePart(phase, rest_is if PARTS_OF[phase] else Work.COMPUTE, rest)]


def summarise_phases(
    rounds: Sequence[Metrics], steps_per_sample: int = 1, machines: int = 1, longest_step_s: float | None = None
) -> PhaseSummary:
    """Ranks are divided evenly among the machines, in order."""
    skews = [median(one.skew_s) / steps_per_sample for one in rounds if one.skew_s]
    lags = [[lag / steps_per_sample for lag in one.rank_lag_s or ()] for one in rounds]
    by_lag: Iterable[tuple[float | str, ...]] = zip_longest(*lags, fillvalue=ABSENT)
    machine_skews = [_machine_skew(lag, machines) for lag in lags if lag and machines > 1]
    by_rank = [one.phases_by_rank_s for one in rounds if one.phases_by_rank_s]
    return PhaseSummary(
        phases_s=_over_rounds([one.phases_s or {} for one in rounds]),
        skew_s=over_values(skews) if skews else None,
        rank_lag_s=tuple(map(over_values, by_lag)),
        phases_by_rank_s=tuple(map(_over_rounds, zip(*by_rank, strict=True))),
        machine_skew_s=over_values(machine_skews) if machine_skews else None,
        longest_step_s=longest_step_s,
    )


def _machine_skew(rank_lag_s: Sequence[float], machines: int) -> float:
    size = len(rank_lag_s) // machines
    of_machines = [max(rank_lag_s[first : first + size]) for first in range(0, size * machines, size)]
    return max(of_machines) - min(of_machines)


def _over_rounds(rounds: Sequence[Mapping[str, float | str]]) -> dict[str, OverRounds]:
    names = dict.fromkeys(name for one in rounds for name in one)
    return {name: over_values([one.get(name, ABSENT) for one in rounds]) for name in names}
