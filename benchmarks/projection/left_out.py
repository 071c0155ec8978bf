"""The model's error from the published rows, and the intervals that it gives a source whose rows are left out. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.projection.outcomes import Order, Outcome, claimed
from dpbench.projection.model_error import EXACT, ModelError
from dpbench.projection.project import Interval

LEVEL = 0.9
Excess = Callable[[Outcome], float]


def model_error_of(outcomes: Sequence[Outcome]) -> ModelError:
    """Return the factors that the claimed rows give: `EXACT` without any.

    A source counts once, by its worst row, because its rows err alike. Of n sources the worst but a tenth of n + 1 sets
    the factor, so that a further source lies inside nine times in ten. Below nine sources it is the worst of all.
    """
    return ModelError(_factor(outcomes, _step_excess), _factor(outcomes, _ratio_excess))


def left_out(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes with the error that the other sources give each."""
    return [_widened(each, model_error_of(_others(outcomes, each.table))) for each in outcomes]


def orders_left_out(orders: Sequence[Order], outcomes: Sequence[Outcome]) -> list[Order]:
    """Return the orders with the error that the other sources give each."""
    return [
        replace(each, predicted=each.predicted.widened(model_error_of(_others(outcomes, each.table)).of_ratio(2)))
        for each in orders
    ]


def _others(outcomes: Sequence[Outcome], table: str) -> list[Outcome]:
    return [each for each in outcomes if each.table != table]


def _widened(found: Outcome, error: ModelError) -> Outcome:
    return replace(
        found,
        predicted=found.predicted.widened(error.step_time if found.factor is None else error.ratio),
        alone=found.alone.widened(error.step_time),
        one_device_alone=found.one_device_alone.widened(error.step_time),
    )


def _factor(outcomes: Sequence[Outcome], excess: Excess) -> float:
    worst: dict[str, float] = {}
    for each in claimed(outcomes):
        worst[each.table] = max(excess(each), worst.get(each.table, 1.0))
    if not worst:
        return EXACT.ratio
    return sorted(worst.values())[min(math.ceil(LEVEL * (len(worst) + 1)), len(worst)) - 1]


def _step_excess(found: Outcome) -> float:
    assert found.one_device is not None  # else no claim counts the row
    assert found.measured is not None
    return max(_excess(found.alone, found.measured), _excess(found.one_device_alone, found.one_device))


def _ratio_excess(found: Outcome) -> float:
    assert found.measured is not None
    return _excess(found.predicted, found.measured)


def _excess(interval: Interval, published: float) -> float:
    """Return by what factor the bounds must move out to contain a published step."""
    return max(interval.low / published, published / interval.high, 1.0)
