"""What is kept of a gate, for those that come after it: one line of the history.

SCHEMA history
    1  first.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from dpbench.gate.judgement import Verdict
from dpbench.results.record import Environment

SCHEMA = 1

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LineError(ValueError):
    """What is wrong with a line, in one line."""


class StepTimes(BaseModel):
    """One benchmark; `case` is its case's id, as names may come to mean something else.

    The times are medians over rounds; `ratio` is head's over base's. `twin_alarmed` is whether base would have been
    called slower than itself; None where that was not measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    case: str
    base_step_s: Positive
    head_step_s: Positive
    ratio: Positive
    rounds: int = Field(ge=1)
    twin_alarmed: bool | None = None


class HistoryLine(BaseModel):
    """One gate. The commits are whole hashes; `head_commit` None is a tree that was no commit."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: int = Field(default=SCHEMA, alias="schema")
    started_at: str
    base_commit: str
    head_commit: str | None
    verdict: Verdict
    environment: Environment
    benchmarks: tuple[StepTimes, ...]

    @property
    def machine(self) -> Environment:
        return machine_of(self.environment)


def machine_of(environment: Environment) -> Environment:
    """What must be equal before step times of two commits are put in one series: all but the code.

    `results.compare` asks for the same of two records, and for the same code.
    """
    return environment.model_copy(update={"dpbench": "", "commit": None, "dirty": None})


def to_line(line: HistoryLine) -> bytes:
    return line.model_dump_json(by_alias=True).encode() + b"\n"


def parse_line(text: bytes) -> HistoryLine:
    """Raises LineError for what is no line, or one of a schema that this version does not know."""
    try:
        fields: Any = from_json(text)
    except ValueError as error:
        raise LineError(f"is not JSON: {error}") from error
    schema = fields.get("schema") if isinstance(fields, dict) else None
    if type(schema) is not int or schema < 1:
        raise LineError(f"has no schema number; allowed: 1 to {SCHEMA}")
    if schema > SCHEMA:
        raise LineError(f"has schema {schema}, newer than this dpbench knows; allowed: 1 to {SCHEMA}")
    try:
        return HistoryLine.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise LineError(f"is no line of a gate: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
