"""The options of `dpbench elastic`, checked."""

from dpbench.elastic.elastic_record import CheckpointBackend, ElasticSettings
from dpbench.elastic.plan import check_plan, draw_plan, parse_kinds, parse_plan
from dpbench.errors import WrongInputError
from dpbench.run.ask import ask_machine
from dpbench.sweep.names import is_factory, parse_workload
from dpbench.sweep.outside import shown
from dpbench.sweep.quantities import parse_duration

DTYPES = ("float32", "float64")
_MOST_RANKS = 64
_MOST = 1_000_000


def elastic_settings(
    *,
    workload: str,
    ranks: int,
    steps: int,
    batch: int,
    dtype: str,
    checkpoint_every: int,
    backend: str,
    max_restarts: int,
    hang_timeout: str,
    seed: int,
    faults: str,
    plan: str | None,
) -> ElasticSettings:
    """Return the settings; `plan` replaces the faults that are drawn. Raise WrongInputError for the first wrong one."""
    try:
        parse_workload(workload)
    except ValueError as error:
        raise WrongInputError(f"workload: {error}") from None
    _whole("ranks", ranks, 1, _MOST_RANKS)
    _whole("steps", steps, 2, _MOST)
    _whole("batch", batch, ranks, _MOST)
    _whole("checkpoint-every", checkpoint_every, 1, _MOST)
    _whole("max-restarts", max_restarts, 0, 1000)
    _whole("seed", seed, 0, 2**31 - 1)
    _one_of("dtype", dtype, DTYPES)
    _one_of("backend", backend, tuple(CheckpointBackend))
    kinds = parse_kinds(faults)
    planned = draw_plan(seed, steps, ranks, kinds) if plan is None else parse_plan(plan)
    check_plan(planned, steps, ranks, max_restarts, batch)
    return ElasticSettings(
        workload=workload,
        ranks=ranks,
        steps=steps,
        batch=batch,
        dtype=dtype,
        checkpoint_every=checkpoint_every,
        backend=CheckpointBackend(backend),
        max_restarts=max_restarts,
        hang_timeout_s=duration_s("hang-timeout", hang_timeout),
        seed=seed,
        plan=planned,
    )


def check_factory(settings: ElasticSettings, timeout_s: float) -> None:
    """Build the user's own workload in a child. Raise WrongInputError if that fails; a built-in one is not built."""
    name = settings.workload
    if is_factory(name):
        error = ask_machine((name,), timeout_s=timeout_s).workload_errors[name]
        if error is not None:
            raise WrongInputError(error if name in error else f"workload: {name!r}: {error}")


def duration_s(field: str, text: str) -> float:
    """Return the seconds of an option such as ``90s``. Raise WrongInputError with the field's name."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise WrongInputError(f"{field}: {error}") from None


def _whole(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise WrongInputError(f"{field}: {shown(value)} is not allowed; allowed: {least} to {most}")


def _one_of(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise WrongInputError(f"{field}: {value!r} is not allowed; allowed: {', '.join(allowed)}")
