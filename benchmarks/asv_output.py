"""A plugin of asv: its tables leave out values of parameters that this machine cannot measure.

The grid is the same on every machine, so most of its combinations are skipped on one without GPUs.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import isnan
from typing import Any

from asv import results

Cell = tuple[float | None, float | None]
"""A result and its error. The result is NaN if it was skipped and None if it failed."""
Table = Callable[..., list[str]]


def setup() -> None:
    """Called by asv when it loads the plugin."""
    results._format_benchmark_result = without_skipped(results._format_benchmark_result)


def without_skipped(table: Table) -> Table:
    """A table of the values that were measured or failed, and a line about the others."""

    def lines(cells: Sequence[Cell], benchmark: Mapping[str, Any], max_width: int | None = None) -> list[str]:
        params = benchmark["params"]
        kept = _kept(cells, params)
        if all(len(places) == len(values) for places, values in zip(kept, params, strict=True)):
            return table(cells, benchmark, max_width)
        places = product(*(range(len(values)) for values in params))
        shown = [cell for cell, at in zip(cells, places, strict=True) if _is_in(at, kept)]
        note = f"{len(cells) - len(shown)} of {len(cells)} combinations cannot be measured here"
        if not shown:
            return [note]
        fewer = [[values[i] for i in places] for values, places in zip(params, kept, strict=True)]
        return [*table(shown, {**benchmark, "params": fewer}, max_width), note]

    return lines


def _kept(cells: Sequence[Cell], params: Sequence[Sequence[str]]) -> list[list[int]]:
    """For each parameter the places of its values with a result that is not NaN."""
    places = list(product(*(range(len(values)) for values in params)))
    used = [at for at, (value, _) in zip(places, cells, strict=True) if value is None or not isnan(value)]
    return [sorted({at[axis] for at in used}) for axis in range(len(params))]


def _is_in(at: tuple[int, ...], kept: Sequence[Sequence[int]]) -> bool:
    return all(place in places for place, places in zip(at, kept, strict=True))
