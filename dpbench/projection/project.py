"""A projection: the step time of one variant on one machine, how sure it is, and why it is so. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpbench.projection.described.machine import HostCost, Machine
from dpbench.projection.model_error import EXACT, ModelError
from dpbench.projection.replay.critical_path import shares_of_path
from dpbench.projection.replay.draws import Draws
from dpbench.projection.replay.fair import costs, fair_finish_s, finish_times, slowed_beside
from dpbench.projection.replay.fifo import Schedule, schedule
from dpbench.projection.replay.rates import Rates, formats_of
from dpbench.projection.replay.tasks import Rate, Role, Tasks

Array = NDArray[np.float64]
QUANTILES = (0.05, 0.95)
_ROLE_OF = {"host": Role.HOST, "route": Role.LINK, "latency": Role.LINK, "collective": Role.LINK}
"""The role of a rate by its first word; all others are computation."""


@dataclass(frozen=True)
class Interval:
    """The mid case, and the bounds of the 90 % interval."""

    low: float
    mid: float
    high: float

    def widened(self, factor: float) -> "Interval":
        """Return the interval with each bound moved out by a factor."""
        return Interval(self.low / factor, self.mid, self.high * factor)


@dataclass(frozen=True)
class Sensitivity:
    """A parameter, and the step time if it alone is at its `low` or `high` end, as a ratio to the mid case."""

    parameter: str
    low: float
    high: float

    @property
    def effect(self) -> float:
        return max(abs(self.low - 1), abs(self.high - 1))


@dataclass(frozen=True)
class Projection:
    """What a step costs.

    `step_time_s` has the interval. `sample_s` are the draws behind it; draws of two variants on one machine belong
    together. `draws_s` are all draws in the order of `Draws.values`, without the limit of a data loader. `bound_by`
    are the parts of the critical path, largest first, as shares. `saved` is by what share the step were shorter if
    links, host or computation cost nothing. `hidden` is the share of the communication that the step does not wait
    for, None if nothing is sent. `uneven` is the share that the slowest of several devices costs. `fair_ratio` is the
    step time with fairly shared links, as a ratio. `model_error` has widened the interval, not the draws.
    """

    devices: int
    batch: int
    step_time_s: Interval
    sample_s: Array
    draws_s: Array
    bound_by: tuple[tuple[str, float], ...]
    saved: Mapping[Role, float]
    uneven: float
    hidden: float | None
    communication_s: float
    sensitivities: tuple[Sensitivity, ...]
    fair_ratio: float
    model_error: ModelError
    tasks: Tasks
    schedule: Schedule


def project(
    tasks: Tasks, machine: Machine, draws: Draws, *, devices: int, batch: int, math: str, error: ModelError = EXACT
) -> Projection:
    """Return the projection of these tasks. `math` is a name for `formats_of`."""
    rates = Rates(machine, draws.values, formats_of(machine, math))
    first_names, first_amounts = costs(tasks)
    mid_seconds = first_amounts @ rates.table(first_names)[:, 0]
    tasks = slowed_beside(tasks, mid_seconds.tolist())
    names, amounts = costs(tasks)
    table = rates.table(names)
    handover = rates.table([("host", HostCost.LOCK_HANDOVER)])[0]
    table, handover = _with_free_parts(names, table, handover)
    seconds = amounts @ table
    found = schedule(tasks, seconds[:, 0].tolist(), float(handover[0]))
    for i in found.handovers:
        seconds[i] += handover
    finish = finish_times(tasks, found, seconds)
    skew = draws.values["skew"] if devices > 1 else np.ones(draws.count)
    times = _step_times(tasks, finish)
    step = times[: draws.count] * skew
    fair = fair_finish_s(tasks, found, seconds[:, 0].tolist()) / float(finish[:, 0].max())
    return Projection(
        devices=devices,
        batch=batch,
        step_time_s=_interval(step, draws, fair).widened(error.step_time),
        sample_s=step[draws.sample],
        draws_s=step,
        bound_by=shares_of_path(tasks, found),
        saved={role: 1 - float(times[draws.count + i] / times[0]) for i, role in enumerate(Role)},
        uneven=1 - float(times[0] / step[0]),
        hidden=_hidden(tasks, found, float(times[0]), float(times[draws.count + list(Role).index(Role.LINK)])),
        communication_s=communication_s(tasks, found),
        sensitivities=_sensitivities(step, draws),
        fair_ratio=fair,
        model_error=error,
        tasks=tasks,
        schedule=found,
    )


def limited_by_loader(projection: Projection, items_per_s: float) -> Projection:
    """Return the projection with a data loader that delivers so many items a second, and not more."""
    limit_s = projection.batch / items_per_s
    time = projection.step_time_s
    slower = {
        "step_time_s": Interval(max(time.low, limit_s), max(time.mid, limit_s), max(time.high, limit_s)),
        "sample_s": np.maximum(projection.sample_s, limit_s),
    }
    if time.mid < limit_s:
        slower["bound_by"] = (("data loader", 1.0),)
    return replace(projection, **slower)  # type: ignore[arg-type]  # the fields' own types


def _with_free_parts(names: Sequence[Rate], table: Array, handover: Array) -> tuple[Array, Array]:
    """Add a draw for each role: the mid case, in which everything of this role costs nothing."""
    roles = [_ROLE_OF.get(name[0], Role.COMPUTE) for name in names]
    free = [np.where([role is each for role in roles], 0.0, table[:, 0]) for each in Role]
    handovers = [0.0 if each is Role.HOST else handover[0] for each in Role]
    return np.column_stack([table, *free]), np.concatenate([handover, handovers])


def _step_times(tasks: Tasks, finish: Array) -> Array:
    """Return the time of a step. Of several steps it is the mean distance between their ends, from the first one on."""
    ends = [finish[:count].max(axis=0) for count in tasks.step_ends]
    times: Array = ends[0] if len(ends) == 1 else (ends[-1] - ends[0]) / (len(ends) - 1)
    return times


def _interval(step: Array, draws: Draws, fair_ratio: float) -> Interval:
    """Return the interval, wider by what fairly shared links change."""
    low, high = np.quantile(step[draws.sample], QUANTILES)
    return Interval(float(low * min(fair_ratio, 1)), float(step[0]), float(high * max(fair_ratio, 1)))


def _sensitivities(step: Array, draws: Draws) -> tuple[Sensitivity, ...]:
    found = [
        Sensitivity(name, float(step[low] / step[0]), float(step[high] / step[0]))
        for name, (low, high) in draws.ends.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.effect))


def communication_s(tasks: Tasks, found: Schedule) -> float:
    """Return for how long at least one link carries something."""
    spans = sorted((found.starts[i], found.finishes[i]) for i, task in enumerate(tasks.all) if task.role is Role.LINK)
    total, end = 0.0, 0.0
    for start, finish in spans:
        total += max(finish - max(start, end), 0.0)
        end = max(end, finish)
    return total


def _hidden(tasks: Tasks, found: Schedule, step_s: float, free_links_s: float) -> float | None:
    steps = len(tasks.step_ends)
    total = communication_s(tasks, found) / steps
    return None if total == 0 else min(max(1 - (step_s - free_links_s) / total, 0.0), 1.0)
