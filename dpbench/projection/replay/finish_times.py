"""The finish of each task for many draws of a machine's parameters at once. Pure.

The order in which a resource serves its tasks is that of the mid case. With this order fixed, a task's finish is
the latest finish of those before it, plus its own time. A row of an array holds all draws, so one pass answers all.
"""

import numpy as np
from numpy.typing import NDArray

from dpbench.projection.replay.fifo import Schedule
from dpbench.projection.replay.tasks import Rate, Tasks

Array = NDArray[np.float64]


def costs(tasks: Tasks) -> tuple[list[Rate], Array]:
    """Return all rates, and the amount of each rate (column) that each task (row) takes."""
    names = list(dict.fromkeys(rate for task in tasks.all for rate in task.cost))
    position = {rate: column for column, rate in enumerate(names)}
    amounts = np.zeros((len(tasks), len(names)))
    for row, task in enumerate(tasks.all):
        for rate, amount in task.cost.items():
            amounts[row, position[rate]] = amount
    return names, amounts


def finish_times(tasks: Tasks, schedule: Schedule, seconds: Array) -> Array:
    """Return the finish of each task (row) in each draw (column), from the `seconds` that it takes there."""
    finish = np.zeros_like(seconds)
    for i in schedule.order:
        row = finish[i]
        for earlier in {*tasks.all[i].before, *schedule.follows[i]}:
            np.maximum(row, finish[earlier], out=row)
        row += seconds[i]
    return finish
