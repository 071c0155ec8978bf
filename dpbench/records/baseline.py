"""The figures of a pytest benchmark, and the file in which a baseline of them lies."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError

from dpbench.judge.estimate import Estimate
from dpbench.records.record import Environment, differences
from dpbench.records.row import Row, RowError, parse_row
from dpbench.text.outside import one_line
from dpbench.text.validated import what_is_wrong


class BaselineError(ValueError):
    pass


class BaselineMachine(Row):
    kind: Literal["baseline"] = "baseline"
    environment: Environment


@dataclass(frozen=True)
class Figures:
    """Median and minimum of a benchmark's rounds in seconds, with intervals."""

    median_s: Estimate
    minimum_s: Estimate
    rounds: int


_FIGURES = TypeAdapter(Figures)


class _Extra(BaseModel):
    dpbench: dict[str, Any] | None = None


class _Benchmark(BaseModel):
    fullname: str
    extra_info: _Extra


class Saved(BaseModel):
    """The plugin's part of pytest-benchmark's file: every entry named ``dpbench``."""

    machine_info: _Extra
    benchmarks: tuple[_Benchmark, ...]

    @property
    def machine(self) -> dict[str, Any] | None:
        """None if no `dp_benchmark` was measured."""
        return self.machine_info.dpbench

    def figures(self) -> dict[str, Figures]:
        """Figures by test name; raise BaselineError."""
        saved = {benchmark.fullname: benchmark.extra_info.dpbench for benchmark in self.benchmarks}
        return {name: from_json(fields, name) for name, fields in saved.items() if fields is not None}


def to_json(figures: Figures) -> dict[str, Any]:
    return asdict(figures)


def parse_saved(content: Mapping[str, Any]) -> Saved:
    """Raise BaselineError."""
    try:
        return Saved.model_validate(content)
    except ValidationError as error:
        raise BaselineError(f"baseline: {what_is_wrong(error)}") from error


def from_json(fields: Mapping[str, Any], name: str) -> Figures:
    """What `to_json` wrote; other fields are ignored. Raise BaselineError."""
    try:
        figures = _FIGURES.validate_python({key: fields.get(key) for key in Figures.__dataclass_fields__})
    except ValidationError as error:
        raise BaselineError(f"baseline: {one_line(name)}: {what_is_wrong(error)}") from error
    for field, figure in (("median_s", figures.median_s), ("minimum_s", figures.minimum_s)):
        if not all(isfinite(time_s) and time_s > 0 for time_s in (figure.value, *figure.ends)):
            raise BaselineError(f"baseline: {one_line(name)}: {field}: {figure}; allowed: finite seconds above 0")
    return figures


def machine_of(environment: Environment) -> dict[str, Any]:
    """What must be equal before times are compared."""
    return BaselineMachine(environment=environment.machine(of_any_name=True)).to_json()


def refuse_foreign(now: Mapping[str, Any], then: Mapping[str, Any]) -> None:
    """Raise BaselineError for another schema or another machine; name the fields that differ."""
    try:
        here, there = (parse_row(machine, BaselineMachine).environment for machine in (now, then))
    except RowError as error:
        raise BaselineError(f"baseline: {error}") from error
    if unlike := differences([there, here]):
        fields = ", ".join(f"{name} ({' / '.join(map(repr, values))})" for name, values in unlike.items())
        raise BaselineError(f"baseline: it and this machine differ in {fields}; allowed: a baseline of this machine")
