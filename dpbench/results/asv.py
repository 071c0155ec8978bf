"""asv's file of results, version 2: what one machine measured of one commit in one environment.

Of a benchmark there is one row, whose columns are lists with a place for each combination of parameters, in the order
of their product; the combinations are texts. A row ends where only nulls would follow. As asv does, NaN stands for what
was skipped and null for what failed, and beside standard JSON there may be Infinity in an interval.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import isnan, nan
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from dpbench.results.asv_machine import AsvError
from dpbench.results.atomic import replace_text

COLUMNS = (
    *("result", "params", "version", "started_at", "duration"),
    *("stats_ci_99_a", "stats_ci_99_b", "stats_q_25", "stats_q_75", "stats_number", "stats_repeat"),
    *("samples", "profile"),
)
_VERSION = 2
_BY_POINT = ("result", *(name for name in COLUMNS if name.startswith("stats_")), "samples")

Point = tuple[str, ...]
"""One combination of parameters, each as Python's repr."""


@dataclass(frozen=True)
class Measured:
    """Of one point; `stats` has the columns ``stats_*``, without that beginning."""

    result: float
    stats: Mapping[str, float] | None = None
    samples: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Row:
    """Of one benchmark. A point that is in `params` and not in `points` was skipped or failed."""

    params: tuple[tuple[str, ...], ...]
    version: str
    points: Mapping[Point, Measured] = field(default_factory=dict)
    started_at_ms: int | None = None


class ResultFile(BaseModel):
    """`results` has the rows as they stand in the file; `row` and `with_row` are the ways to read and change them."""

    model_config = ConfigDict(extra="allow")

    commit_hash: str
    env_name: str
    date: int
    params: dict[str, str | None]
    python: str
    requirements: dict[str, Any]
    env_vars: dict[str, Any] = {}
    result_columns: Annotated[tuple[str, ...], BeforeValidator(tuple)] = COLUMNS
    results: dict[str, list[Any]] = {}
    durations: dict[str, Any] = {}
    version: Literal[2] = 2

    @model_validator(mode="after")
    def _known_columns(self) -> "ResultFile":
        if unknown := set(self.result_columns) - set(COLUMNS):
            raise ValueError(f"unknown columns {sorted(unknown)}")
        return self

    def row(self, benchmark: str) -> Row | None:
        """None where the benchmark is not there. Raises AsvError for a row that is none."""
        if benchmark not in self.results:
            return None
        columns = dict(zip(self.result_columns, self.results[benchmark], strict=False))
        try:
            params = tuple(tuple(map(str, values)) for values in columns["params"])
            places = list(product(*params))
            by_point = {name: columns.get(name) or [None] * len(places) for name in _BY_POINT}
            found = dict(zip(places, zip(*by_point.values(), strict=True), strict=True))
        except (KeyError, TypeError, ValueError) as error:
            raise AsvError(f"{benchmark}: is no row of results: {error!r}") from error
        points = {place: _measured(dict(zip(by_point, values, strict=True))) for place, values in found.items()}
        known = {place: point for place, point in points.items() if point is not None}
        return Row(params, str(columns.get("version")), known, columns.get("started_at"))

    def with_row(self, benchmark: str, row: Row) -> "ResultFile":
        places = list(product(*row.params))
        points = [row.points.get(place) for place in places]
        columns: dict[str, Any] = {
            "result": [nan if point is None else point.result for point in points],
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
    """Raises AsvError for what is no such file, or one of a version that this reader does not know."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
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
        first = error.errors()[0]
        raise AsvError(f"{path}: is no file of results: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def write_results(path: Path, found: ResultFile) -> None:
    """Raises AsvError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(found.model_dump()))
    except OSError as error:
        raise AsvError(f"{path}: cannot be written: {error.strerror}") from error


def _measured(values: Mapping[str, Any]) -> Measured | None:
    if values["result"] is None or isnan(values["result"]):
        return None
    stats = {
        name.removeprefix("stats_"): value
        for name, value in values.items()
        if name.startswith("stats_") and value is not None
    }
    samples: Sequence[float] | None = values["samples"]
    return Measured(values["result"], stats or None, None if samples is None else tuple(samples))
