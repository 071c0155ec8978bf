"""From the counts of a step to those of the published one: its batch, its buffers, and what it times. Pure."""

from dataclasses import replace

from benchmarks.instruments.projection.row_file import Data, Series, Table
from dpbench.projection.step_counts import StepCounts
from dpbench.records.count_record import Phase

_INPUT = "sent/input/host/"


def as_published(counts: StepCounts, table: Table, series: Series) -> StepCounts:
    """Without what the published run lacks, and with what only that run has."""
    numbers, model = dict(counts.numbers), counts.model
    if not series.broadcast_buffers:
        model = replace(model, buffer_bytes=0)
    if not series.optimiser:
        model = replace(model, parameters=0)
        numbers = {name: value for name, value in numbers.items() if Phase.OPTIMISER not in name.split("/")}
    if table.data is not Data.LOADER:
        inputs = {name: value for name, value in numbers.items() if name.startswith(_INPUT)}
        numbers = {name: value for name, value in numbers.items() if name not in inputs}
        if table.data is Data.HOME:
            numbers |= _by_home(inputs)
    return replace(counts, numbers=numbers, model=model)


def _by_home(inputs: dict[str, float]) -> dict[str, float]:
    """The whole batch's way to device 0, and each share's way from there."""
    by_home = dict[str, float]()
    for name, value in inputs.items():
        device, number = name.removeprefix(_INPUT).split("/")
        by_home[f"{_INPUT}0/{number}"] = by_home.get(f"{_INPUT}0/{number}", 0.0) + value
        if device != "0":
            by_home[f"sent/scatter/0/{device}/{number}"] = value
    return by_home
