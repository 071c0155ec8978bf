"""A step's phases as parts that do not overlap, so that they add up to the step. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dpbench.results.phase_summary import PhaseSummary

_PARTS_OF = {
    "forward": ("scatter", "replicate", "parallel_apply", "gather", "loss"),
    "backward": ("reduce",),
    "optimiser": (),
}


class Work(StrEnum):
    """What a part of a step does."""

    COMPUTE = "compute"
    MOVE = "move data"


_MOVES = ("scatter", "replicate", "gather", "reduce")


@dataclass(frozen=True)
class PhasePart:
    """A part of a step in seconds. ``rest of forward`` is what its named parts leave."""

    name: str
    work: Work
    time_s: float


def phase_parts(found: PhaseSummary | None) -> tuple[PhasePart, ...]:
    """Return the parts in their order in the step; none if forward, which every step has, has no time."""
    known = {} if found is None else {name: each.value for name, each in found.phases_s.items()}
    times = {name: value for name, value in known.items() if value is not None}
    if "forward" not in times:
        return ()
    return tuple(part for phase in _PARTS_OF if phase in times for part in _parts(phase, times))


def share_of_moves(parts: tuple[PhasePart, ...]) -> float | None:
    """Return the share of the step that scatter, replicate, gather and reduce take; None if none is known."""
    moves = [part.time_s for part in parts if part.work is Work.MOVE]
    total = sum(part.time_s for part in parts)
    return sum(moves) / total if moves and total > 0 else None


def _parts(phase: str, times: Mapping[str, float]) -> list[PhasePart]:
    found = [
        PhasePart(name, Work.MOVE if name in _MOVES else Work.COMPUTE, times[name])
        for name in _PARTS_OF[phase]
        if name in times
    ]
    rest = max(times[phase] - sum(part.time_s for part in found), 0.0)
    name = f"rest of {phase}" if found else phase
    return [*found, PhasePart(name, Work.COMPUTE, rest)]
