"""A step's phases as parts that do not overlap, so that they add up to the step. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dpbench.records.phase_summary import PhaseSummary

PARTS_OF = {
    "forward": ("scatter", "replicate", "parallel_apply", "gather", "loss"),
    "backward": ("reduce",),
    "optimiser": (),
}


class Work(StrEnum):
    """What a part of a step does."""

    COMPUTE = "compute"
    MOVE = "move data"
    BOTH = "compute and move data"


MOVES = " + moves"
_MOVES = ("scatter", "replicate", "gather", "reduce")


@dataclass(frozen=True)
class PhasePart:
    """A part of a step in seconds. `forward` and `backward` are without their other parts.

    Work.BOTH is a whole phase of several devices whose moves are not known apart, such as the backward of ddp.
    """

    name: str
    work: Work
    time_s: float

    @property
    def label(self) -> str:
        """The name that all reports show, such as ``backward + moves``."""
        return f"{self.name}{MOVES}" if self.work is Work.BOTH else self.name


def phase_parts(phase_summary: PhaseSummary | None, devices: int = 1) -> tuple[PhasePart, ...]:
    """Return the parts in their order in the step; none if forward, which every step has, has no time.

    `devices` is how many devices the case has.
    """
    known = {} if phase_summary is None else {name: each.value for name, each in phase_summary.phases_s.items()}
    times = {name: value for name, value in known.items() if value is not None}
    if "forward" not in times:
        return ()
    rest = Work.BOTH if devices > 1 and not any(name in times for name in _MOVES) else Work.COMPUTE
    return tuple(part for phase in PARTS_OF if phase in times for part in _parts(phase, times, rest))


def share_of_moves(parts: tuple[PhasePart, ...]) -> float | None:
    """Return the share of the step that scatter, replicate, gather and reduce take; None if none is known."""
    moves = [part.time_s for part in parts if part.work is Work.MOVE]
    total = sum(part.time_s for part in parts)
    return sum(moves) / total if moves and total > 0 else None


@dataclass(frozen=True)
class Saving:
    """The phase in which one variant saves most time against another, in seconds."""

    name: str
    time_s: float
    other_s: float

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole phase that has parts."""
        return bool(PARTS_OF.get(self.name))


def largest_saving(phase_summary: PhaseSummary | None, other: PhaseSummary | None) -> Saving | None:
    """Return where the first saves most against the other; None if it saves nowhere.

    A part is named in place of its whole phase if it has at least half of the saving.
    """
    both = [] if phase_summary is None or other is None else _in_both(phase_summary, other)
    wholes = [each for each in both if each.name in PARTS_OF]
    parts = [each for each in both if each.name not in PARTS_OF]
    whole, part = (max(each, key=_saved, default=None) for each in (wholes, parts))
    if part is not None and (whole is None or _saved(part) >= _saved(whole) / 2):
        whole = part
    return whole if whole is not None and _saved(whole) > 0 else None


def _in_both(phase_summary: PhaseSummary, other: PhaseSummary) -> list[Saving]:
    pairs = {
        name: (each.value, other.phases_s[name].value)
        for name, each in phase_summary.phases_s.items()
        if name in other.phases_s
    }
    return [Saving(name, a, b) for name, (a, b) in pairs.items() if a is not None and b is not None]


def _saved(saving: Saving) -> float:
    return saving.other_s - saving.time_s


def _parts(phase: str, times: Mapping[str, float], rest_is: Work) -> list[PhasePart]:
    found = [
        PhasePart(name, Work.MOVE if name in _MOVES else Work.COMPUTE, times[name])
        for name in PARTS_OF[phase]
        if name in times
    ]
    rest = max(times[phase] - sum(part.time_s for part in found), 0.0)
    return [*found, PhasePart(phase, rest_is if PARTS_OF[phase] else Work.COMPUTE, rest)]
