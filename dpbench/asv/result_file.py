"""asv's results file, version 2: one commit, on one machine, in one environment.

A benchmark has one row. Its columns are lists with a place for each combination of parameters, in the order of their
product. Combinations are texts. A row ends before trailing nulls.

As in asv, NaN marks a skipped combination and null a failed one. An interval may hold Infinity, which is not standard
JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from math import nan, prod
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat, TypeAdapter, ValidationError, model_validator

from dpbench.asv.machine_file import AsvError, what_is_wrong
from dpbench.records.record import Commit
from dpbench.text.files import replace_text
from dpbench.text.outside import read_json

COLUMNS = (
    *("result", "params", "version", "started_at", "duration"),
    *("stats_ci_99_a", "stats_ci_99_b", "stats_q_25", "stats_q_75", "stats_number", "stats_repeat"),
    *("samples", "profile"),
)
_VERSION = 2
_MOST_PLACES = 1_000_000
_BY_POINT = ("result", *(name for name in COLUMNS if name.startswith("stats_")), "samples")

Point = tuple[str, ...]
"""One combination of parameters, each as its Python repr."""


@dataclass(frozen=True)
class Measured:
    """The result of one point. `stats` has the columns ``stats_*``, without this prefix."""

    result: FiniteFloat
    stats: Mapping[str, float] | None = None
    samples: tuple[FiniteFloat, ...] | None = None


@dataclass(frozen=True)
class ResultRow:
    """The row of one benchmark.

    A point that is neither in `points` nor in `failed` was skipped.
    """

    params: tuple[tuple[str, ...], ...]
    version: str
    points: Mapping[Point, Measured] = field(default_factory=dict)
    failed: frozenset[Point] = frozenset()
    started_at_ms: int | None = None


_PARAMS = TypeAdapter(tuple[tuple[str, ...], ...])
_MEASURED = TypeAdapter(Measured)


class ResultFile(BaseModel):
    """The fields of a results file. `row` reads a row of `results`, and `with_row` changes one."""

    model_config = ConfigDict(extra="allow")

    commit_hash: Commit
    env_name: str
    date: int
    params: dict[str, str | None]
    python: str
    requirements: dict[str, Any]
    env_vars: dict[str, Any] = {}
    result_columns: tuple[str, ...] = COLUMNS
    results: dict[str, list[Any]] = {}
    durations: dict[str, Any] = {}
    version: Literal[2] = 2

    @model_validator(mode="after")
    def _known_columns(self) -> "ResultFile":
        if unknown := set(self.result_columns) - set(COLUMNS):
            raise ValueError(f"unknown columns {sorted(unknown)}")
        return self

    def row(self, benchmark: str) -> ResultRow | None:
        """Return a benchmark's row, or None if there is none. Raises AsvError if it cannot be read."""
        if benchmark not in self.results:
            return None
        columns = dict(zip(self.result_columns, self.results[benchmark], strict=False))
        try:
            params = _PARAMS.validate_python(columns["params"])
            if prod(map(len, params)) > _MOST_PLACES:
                raise ValueError(f"params have more than {_MOST_PLACES:,} combinations")
            places = list(product(*params))
            by_point = {name: columns.get(name) or [None] * len(places) for name in _BY_POINT}
            rows = [dict(zip(by_point, values, strict=True)) for values in zip(*by_point.values(), strict=True)]
            points = {place: _measured(row) for place, row in zip(places, rows, strict=True) if _is_number(row)}
            failed = frozenset(place for place, row in zip(places, rows, strict=True) if row["result"] is None)
        except ValidationError as error:
            raise AsvError(f"{benchmark}: is not a row of results: {what_is_wrong(error)}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise AsvError(f"{benchmark}: is not a row of results: {error!r}") from error
        return ResultRow(params, str(columns.get("version")), points, failed, columns.get("started_at"))

    def with_row(self, benchmark: str, row: ResultRow) -> "ResultFile":
        """Return a copy of the file in which the benchmark has this row."""
        places = list(product(*row.params))
        points = [row.points.get(place) for place in places]
        columns: dict[str, Any] = {
            "result": [_result(row, place) for place in places],
            "params": [list(values) for values in row.params],
            "version": row.version,
            "started_at": row.started_at_ms,
            "samples": [None if point is None or point.samples is None else list(point.samples) for point in points],
        }
        for name in COLUMNS:
            if name.startswith("stats_"):
                key = name.removeprefix("stats_")
                columns[name] = [None if p is None or p.stats is None else p.stats.get(key) for p in points]
        ordered = [columns.get(name) for name in self.result_columns]
        while ordered and ordered[-1] is None:
            ordered.pop()
        return self.model_copy(update={"results": {**self.results, benchmark: ordered}})


def read_results(path: Path) -> ResultFile:
    """Read a results file. Raises AsvError if it is none, or has an unknown version."""
    try:
        fields = read_json(path)
    except OSError as error:
        raise AsvError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise AsvError(f"{path}: is not JSON: {error}; allowed: asv's results") from error
    version = fields.get("version") if isinstance(fields, dict) else None
    if version != _VERSION:
        raise AsvError(f"{path}: has version {version!r}; allowed: {_VERSION}")
    try:
        return ResultFile.model_validate(fields)
    except ValidationError as error:
        raise AsvError(f"{path}: is not a results file: {what_is_wrong(error)}") from error


def write_results(path: Path, result_file: ResultFile) -> None:
    """Write a results file, and its folder if needed. Raises AsvError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(result_file.model_dump()))
    except OSError as error:
        raise AsvError(f"{path}: cannot be written: {error.strerror}") from error


def _result(row: ResultRow, place: Point) -> float | None:
    """Return the number in asv's form: None if the point failed, NaN if it was skipped."""
    if place in row.points:
        return row.points[place].result
    return None if place in row.failed else nan


def _is_number(values: Mapping[str, Any]) -> bool:
    return values["result"] is not None and values["result"] == values["result"]


def _measured(values: Mapping[str, Any]) -> Measured:
    stats = {
        name.removeprefix("stats_"): value
        for name, value in values.items()
        if name.startswith("stats_") and value is not None
    }
    return _MEASURED.validate_python({"result": values["result"], "stats": stats or None, "samples": values["samples"]})
