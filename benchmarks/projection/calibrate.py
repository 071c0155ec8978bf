"""One factor from the measured step of one device: of computation, or of the host if the host binds. Pure."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpbench.projection.described.machine import Machine
from dpbench.projection.project import project
from dpbench.projection.replay.draws import Draws
from dpbench.projection.replay.tasks import Role, Tasks

Array = NDArray[np.float64]
DEVICE, HOST = "device.factor", "host.factor"
CLOSE = 1e-4
"""The relative error that is left."""
LEAST = 0.25
"""A factor below this one is taken for impossible."""
_MOST_STEPS = 40


@dataclass(frozen=True)
class Calibration:
    """`draws` give the measured step of one device. `factor` is the name of the one that was set, `mid` its mid case.

    In a `shrunk` share of the draws that factor alone cannot reach the measured step; both factors are smaller there.
    """

    draws: Draws
    factor: str
    mid: float
    shrunk: float


def calibrated(draws: Draws, single: Tasks, machine: Machine, math: str, measured_s: float) -> Calibration:
    """Return draws with which the step of one device, `single`, takes `measured_s` in each draw.

    All parameters but one factor keep their draws. Raise ArithmeticError if there are no such factors.
    """
    at_first = project(single, machine, draws, devices=1, batch=1, math=math)
    name, other = (HOST, DEVICE) if at_first.saved[Role.HOST] > at_first.saved[Role.COMPUTE] else (DEVICE, HOST)
    values = dict(draws.values)
    shrunk = np.zeros(draws.count, dtype=bool)
    factor, ratio = values[name], at_first.draws_s / measured_s
    last_factor, last_ratio = factor, ratio
    for _ in range(_MOST_STEPS):
        if np.all(abs(ratio - 1) < CLOSE):
            return Calibration(replace(draws, values=values), name, float(factor[0]), float(shrunk.mean()))
        found = _next_factor(factor, ratio, last_factor, last_ratio)
        shrunk |= found < LEAST
        last_factor, last_ratio = factor, ratio
        factor = np.where(shrunk, factor / ratio, found)
        values[name], values[other] = factor, np.where(shrunk, values[other] / ratio, values[other])
        changed = replace(draws, values=values)
        ratio = project(single, machine, changed, devices=1, batch=1, math=math).draws_s / measured_s
    raise ArithmeticError(
        f"{machine.name}: no factor gives a step of {measured_s} s; a draw takes {ratio.max():.3f} of it"
    )


def _next_factor(factor: Array, ratio: Array, last_factor: Array, last_ratio: Array) -> Array:
    """Return the factor at which the line through two steps has the measured time."""
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (ratio - last_ratio) / (factor - last_factor)
        found: Array = factor + (1 - ratio) / slope
    return np.where(np.isfinite(found) & (slope > 0), found, factor / ratio)
