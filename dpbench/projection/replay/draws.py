"""Draws of a machine's parameters: the mid case, each parameter alone at its ends, and a random sample. Pure.

A value between low and mid, or mid and high, is drawn on a logarithmic scale: half of the draws are below mid. The
sample is a Latin hypercube, so each parameter takes each of its quantiles once. It depends on the seed and on the
parameters' names alone: two variants on one machine get the same draws, and their ratio is that of common draws.
"""

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpbench.projection.described.machine import Quantity

Array = NDArray[np.float64]
SAMPLE = 256


@dataclass(frozen=True)
class Draws:
    """`values` has an array for each parameter, with an entry for each draw.

    Draw 0 is the mid case. `ends` has for each parameter the draws where it alone is low and high. `sample` are the
    random ones.
    """

    values: Mapping[str, Array]
    ends: Mapping[str, tuple[int, int]]
    sample: slice
    count: int


def draw(parameters: Mapping[str, Quantity], seed: int = 0, size: int = SAMPLE) -> Draws:
    """Return the draws of all parameters."""
    uncertain = [name for name, quantity in parameters.items() if quantity.low < quantity.high]
    ends = {name: (1 + 2 * i, 2 + 2 * i) for i, name in enumerate(uncertain)}
    first = 1 + 2 * len(uncertain)
    values = {name: np.full(first + size, float(quantity.mid)) for name, quantity in parameters.items()}
    for name in uncertain:
        quantity = parameters[name]
        low, high = ends[name]
        values[name][low], values[name][high] = quantity.low, quantity.high
        values[name][first:] = _sample(quantity, name, seed, size)
    return Draws(values, ends, slice(first, first + size), first + size)


def _sample(quantity: Quantity, name: str, seed: int, size: int) -> Array:
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    uniform = (generator.permutation(size) + generator.random(size)) / size
    logs = [math.log(value) for value in (quantity.low, quantity.mid, quantity.high)]
    drawn: Array = np.exp(np.interp(uniform, [0.0, 0.5, 1.0], logs))
    return drawn
