"""Which worker fails, leaves or joins at which step: drawn from a seed, or given as text."""

import random
import re
from collections.abc import Sequence

from dpbench.elastic.elastic_record import WORLD_CHANGES, FaultKind, PlannedFault
from dpbench.errors import WrongInputError

_FAULT = re.compile(r"(?P<kind>[a-z]+)@(?P<step>\d{1,9})(:(?P<rank>\d{1,9}))?", re.ASCII)
_KINDS = ", ".join(FaultKind)
_OF_A_RANK = ", ".join(kind for kind in FaultKind if kind is not FaultKind.JOIN)


def parse_kinds(text: str) -> tuple[FaultKind, ...]:
    """Return the kinds of a text such as ``kill,oom,hang``. Raise WrongInputError."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in list(FaultKind)]
    if unknown:
        raise WrongInputError(f"faults: {unknown[0]!r} is no kind of fault; allowed: {_KINDS}")
    return tuple(FaultKind(word) for word in words)


def parse_plan(text: str) -> tuple[PlannedFault, ...]:
    """Return the faults of a text such as ``kill@12:1,oom@30:0``, ordered by step. Raise WrongInputError."""
    return tuple(sorted((_parse_fault(word.strip()) for word in text.split(",")), key=lambda fault: fault.step))


def _parse_fault(word: str) -> PlannedFault:
    match = _FAULT.fullmatch(word)
    is_known = match is not None and match["kind"] in list(FaultKind)
    if match is None or not is_known or (match["rank"] is None) != (match["kind"] == FaultKind.JOIN):
        raise WrongInputError(
            f"plan: {word!r} is no fault; allowed: KIND@STEP:RANK with KIND of {_OF_A_RANK}, such as kill@12:1; and "
            "join@STEP"
        )
    return PlannedFault(kind=FaultKind(match["kind"]), step=int(match["step"]), rank=int(match["rank"] or 0))


def draw_plan(seed: int, steps: int, ranks: int, kinds: Sequence[FaultKind]) -> tuple[PlannedFault, ...]:
    """Return a fault of each kind, at a drawn step after the first and of a drawn rank.

    The steps differ, and their order is that of the kinds. Equal arguments give equal plans in all versions of Python
    (`random.Random` with an integer).
    Raise WrongInputError if there are fewer steps than faults.
    """
    if len(kinds) > steps - 1:
        raise WrongInputError(
            f"faults: {len(kinds)} faults do not fit into {steps} steps; allowed: at most one a step, after the first"
        )
    draw = random.Random(seed)
    drawn_steps = sorted(draw.sample(range(1, steps), len(kinds)))
    plan: list[PlannedFault] = []
    world = ranks
    for kind, step in zip(kinds, drawn_steps, strict=True):
        rank = 0 if kind is FaultKind.JOIN else draw.randrange(max(1, world))
        plan.append(PlannedFault(kind=kind, step=step, rank=rank))
        world += WORLD_CHANGES.get(kind, 0)
    return tuple(plan)


def check_plan(plan: Sequence[PlannedFault], steps: int, ranks: int, max_restarts: int, batch: int) -> None:
    """Raise WrongInputError for a plan that cannot be carried out or survived."""
    world = ranks
    for fault in plan:
        if fault.step >= steps:
            raise WrongInputError(f"plan: {fault} has no step {fault.step}; allowed: steps 0 to {steps - 1}")
        _check_ranks(fault, world)
        world += WORLD_CHANGES.get(fault.kind, 0)
        if world > batch:
            raise WrongInputError(
                f"plan: {fault} makes {world} ranks, which share a batch of {batch}; allowed: an item for each rank"
            )
    steps_of_faults = [fault.step for fault in plan]
    for step in steps_of_faults:
        if steps_of_faults.count(step) > 1:
            raise WrongInputError(f"plan: two faults at step {step}; allowed: one a step")
    if len(plan) > max_restarts:
        raise WrongInputError(
            f"max-restarts: {max_restarts} is less than the {len(plan)} faults of the plan, so the run could not end; "
            f"allowed: {len(plan)} or more"
        )


def _check_ranks(fault: PlannedFault, world: int) -> None:
    """Raise WrongInputError if the fault cannot happen among `world` ranks."""
    if fault.rank >= world:
        raise WrongInputError(f"plan: {fault} has no rank {fault.rank}; allowed: ranks 0 to {world - 1}")
    if fault.kind is FaultKind.HANG and world == 1:
        raise WrongInputError(f"plan: {fault} would never be noticed, because one rank has no peer; allowed: 2 ranks")
    if fault.kind is FaultKind.LEAVE and world == 1:
        raise WrongInputError(f"plan: {fault} would leave no rank; allowed: 2 ranks before it")
