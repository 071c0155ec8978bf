"""The files of a page: records, the gate's history, and what `dpbench project --json` prints.

What cannot be read is left out and named. Only a file that cannot be read at all is an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from dpbench.cases.plan import Skip
from dpbench.elastic.elastic_record import ElasticRecord
from dpbench.errors import WrongInputError
from dpbench.gate.history import HistoryLine
from dpbench.judge.estimate import Estimate
from dpbench.records.count_record import CountRecord
from dpbench.records.record import Record
from dpbench.records.row import Row
from dpbench.records.store import read_rows
from dpbench.text.outside import one_line, quoted, read_json
from dpbench.text.validated import Items, Positive, Real, what_is_wrong


class _Loose(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class ProjectedTime(_Loose):
    low: Positive
    mid: Positive
    high: Positive

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.mid, self.low, self.high)


class _Bound(_Loose):
    """The part of a machine that sets the step's time."""

    part: str


class ProjectedVariant(_Loose):
    """Without a time it has a `reason`."""

    variant: str
    reason: str | None = None
    step_time_s: ProjectedTime | None = None
    speed_up: ProjectedTime | None = None
    bound_by: tuple[_Bound, ...] = ()
    hidden_share: Real | None = None


class ProjectedMachine(_Loose):
    """As `report/projection_table.py` writes it."""

    machine: str
    workload: str
    batch: Items
    math: str
    advice: str
    variants: tuple[ProjectedVariant, ...]


_PROJECTIONS = TypeAdapter(tuple[ProjectedMachine, ...])


@dataclass(frozen=True)
class PageInputs:
    """What a page shows. `left_out` says in lines what could not be read.

    `commit_dates` has the known dates of commits in seconds since 1970. `with_days` asks for a history over days if
    there is one commit.
    """

    records: Sequence[Record] = ()
    skipped: Sequence[Skip] = ()
    counts: Sequence[CountRecord] = ()
    projections: Sequence[ProjectedMachine] = ()
    elastic: Sequence[ElasticRecord] = ()
    gates: Sequence[HistoryLine] = ()
    left_out: Sequence[str] = field(default_factory=tuple)
    commit_dates: Mapping[str, float] = field(default_factory=dict)
    with_days: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.records or self.skipped or self.counts or self.projections or self.elastic or self.gates)


def read_inputs(paths: Sequence[Path]) -> PageInputs:
    """A name that ends in .json is a projection; any other holds records, elastic runs or gates.

    Raise StoreError or WrongInputError for a file that cannot be read.
    """
    projections: list[ProjectedMachine] = []
    rows: list[Row] = []
    left_out: list[str] = []
    for path in dict.fromkeys(paths):
        if path.suffix == ".json":
            projections += _read_projections(path)
        else:
            contents = read_rows(path, Record, ElasticRecord, HistoryLine, leaves_out_bad_lines=True)
            rows += contents.rows
            left_out += contents.warnings
    return PageInputs(
        records=[row for row in rows if isinstance(row, Record)],
        projections=projections,
        elastic=[row for row in rows if isinstance(row, ElasticRecord)],
        gates=[row for row in rows if isinstance(row, HistoryLine)],
        left_out=left_out,
    )


def parse_projections(content: object) -> tuple[ProjectedMachine, ...]:
    """The machines of an object that `projections_json` made. Raise ValueError, in one line."""
    if not isinstance(content, dict) or "projections" not in content:
        raise ValueError(f"{quoted(content)} has no projections; allowed: what `dpbench project --json` prints")
    try:
        return _PROJECTIONS.validate_python(content["projections"])
    except ValidationError as error:
        raise ValueError(f"projections: {what_is_wrong(error)}") from error


def _read_projections(path: Path) -> tuple[ProjectedMachine, ...]:
    try:
        return parse_projections(read_json(path))
    except OSError as error:
        raise WrongInputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise WrongInputError(one_line(f"{path}: {error}")) from error
