"""The options of `dpbench elastic`, checked, and the plan of faults: drawn from a seed, or given as text."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from dpbench.cases.names import is_factory, parse_workload
from dpbench.cases.variants import split_list
from dpbench.elastic.elastic_record import (
    WORLD_CHANGES,
    CheckpointFormat,
    ElasticSettings,
    FaultKind,
    PlannedFault,
)
from dpbench.errors import WrongInputError, naming
from dpbench.jobs.probe import ask_machine
from dpbench.text.outside import quoted
from dpbench.text.quantities import parse_duration

DTYPES = ("float32", "float64")
_MOST_RANKS = 64
_MOST = 1_000_000
_FAULT = re.compile(r"(?P<kind>[a-z]+)@(?P<step>\d{1,9})(:(?P<rank>\d{1,9}))?", re.ASCII)
_KINDS = ", ".join(FaultKind)
_OF_A_RANK = ", ".join(kind for kind in FaultKind if kind is not FaultKind.JOIN)


def elastic_settings(
    *,
    workload: str,
    ranks: int,
    steps: int,
    batch: int,
    dtype: str,
    checkpoint_every: int,
    checkpoint_format: str,
    max_restarts: int,
    hang_timeout: str,
    seed: int,
    faults: str,
    plan: str | None,
) -> ElasticSettings:
    """Raise WrongInputError for the first wrong option."""
    with naming("workload"):
        parse_workload(workload)
    _whole("nproc-per-node", ranks, 1, _MOST_RANKS)
    _whole("steps", steps, 2, _MOST)
    _whole("batch", batch, ranks, _MOST)
    _whole("checkpoint-every", checkpoint_every, 1, _MOST)
    _whole("max-restarts", max_restarts, 0, 1000)
    _whole("seed", seed, 0, 2**31 - 1)
    _one_of("dtype", dtype, DTYPES)
    _one_of("checkpoint-format", checkpoint_format, tuple(CheckpointFormat))
    kinds = parse_kinds(faults)
    settings = ElasticSettings(
        workload=workload,
        ranks=ranks,
        steps=steps,
        batch=batch,
        dtype=dtype,
        checkpoint_every=checkpoint_every,
        backend=CheckpointFormat(checkpoint_format),
        max_restarts=max_restarts,
        hang_timeout_s=duration_s("hang-timeout", hang_timeout),
        seed=seed,
        plan=draw_plan(seed, steps, ranks, kinds) if plan is None else parse_plan(plan),
    )
    check_plan(settings)
    return settings


def check_factory(settings: ElasticSettings, timeout_s: float) -> None:
    """Raise WrongInputError if a user's factory does not build in a child."""
    name = settings.workload
    if is_factory(name):
        error = ask_machine((name,), timeout_s=timeout_s).workload_errors[name]
        if error is not None:
            raise WrongInputError(error if name in error else f"workload: {name!r}: {error}")


def duration_s(option: str, text: str) -> float:
    """Raise WrongInputError with the option's name."""
    with naming(option):
        return parse_duration(text)


def _whole(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise WrongInputError(f"{field}: {quoted(value)} is not allowed; allowed: {least} to {most}")


def _one_of(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise WrongInputError(f"{field}: {value!r} is not allowed; allowed: {', '.join(allowed)}")


def parse_kinds(text: str) -> tuple[FaultKind, ...]:
    """The kinds in a text such as ``kill,oom,hang``; raise WrongInputError."""
    words = split_list(text) if text else []
    unknown = [word for word in words if word not in list(FaultKind)]
    if unknown:
        raise WrongInputError(f"faults: {unknown[0]!r} is no kind of fault; allowed: {_KINDS}")
    return tuple(FaultKind(word) for word in words)


def parse_plan(text: str) -> tuple[PlannedFault, ...]:
    """The faults in a text such as ``kill@12:1,oom@30:0``, ordered by step; raise WrongInputError."""
    return tuple(sorted(map(_parse_fault, split_list(text)), key=lambda fault: fault.step))


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
    """A fault of each kind, in this order, at a drawn step after the first and of a drawn rank.

    Equal arguments give equal plans in all versions of Python (`random.Random` with an integer). Raise WrongInputError
    if there are fewer steps than faults.
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


def check_plan(settings: ElasticSettings) -> None:
    """Raise WrongInputError for a plan that cannot be carried out or survived."""
    plan, worlds, max_restarts = settings.plan, settings.worlds, settings.max_restarts
    for fault, world, world_after in zip(plan, worlds[:-1], worlds[1:], strict=True):
        if fault.step >= settings.steps:
            raise WrongInputError(f"plan: {fault} has no step {fault.step}; allowed: steps 0 to {settings.steps - 1}")
        _check_ranks(fault, world)
        if world_after > settings.batch:
            raise WrongInputError(
                f"plan: {fault} makes {world_after} ranks, which share a batch of {settings.batch}; allowed: an item "
                "for each rank"
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
    if fault.rank >= world:
        raise WrongInputError(f"plan: {fault} has no rank {fault.rank}; allowed: ranks 0 to {world - 1}")
    if fault.kind is FaultKind.HANG and world == 1:
        raise WrongInputError(f"plan: {fault} would never be noticed, because one rank has no peer; allowed: 2 ranks")
    if fault.kind is FaultKind.LEAVE and world == 1:
        raise WrongInputError(f"plan: {fault} would leave no rank; allowed: 2 ranks before it")


def check_checkpoints(folder: Path) -> None:
    """Raise WrongInputError if no folder can be made in it."""
    if not str(folder).isprintable():  # surrogates stand for bytes that are no UTF-8, and pass no message
        raise WrongInputError(f"checkpoints: {str(folder)!r} holds what cannot be printed; allowed: a path of text")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryDirectory(dir=folder).cleanup()
    except OSError as error:
        raise WrongInputError(
            f"checkpoints: {str(folder)!r} cannot be written: {error.strerror}; allowed: a folder that can be written"
        ) from error
