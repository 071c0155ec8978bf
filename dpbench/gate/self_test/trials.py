"""The trials of a self-test: rounds and whole gates under a condition, one JSON line each.

Field and enum names are the file format's: `planted_in` is the benchmark that the slowdown was injected into.

SCHEMA history
    1  first.
"""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dpbench.errors import GateError
from dpbench.gate.judgement import TimeJudgement, Verdict
from dpbench.gate.ratio import RoundRatio
from dpbench.results.record import Environment
from dpbench.sweep.bounds import Count, Moment, Positive
from dpbench.sweep.outside import open_input, what_is_wrong

SCHEMA = 1


class Condition(StrEnum):
    """How head differs from base, and whether another process runs."""

    EQUAL = "equal"
    LOADED = "equal, one core loaded"
    SLOWER_2 = "2 % slower"
    SLOWER_5 = "5 % slower"
    SLOWER_10 = "10 % slower"

    @property
    def slowdown(self) -> float:
        """The share by which head is slower than base."""
        return {Condition.SLOWER_2: 0.02, Condition.SLOWER_5: 0.05, Condition.SLOWER_10: 0.10}.get(self, 0.0)


class SelfTestTrial(BaseModel):
    """One round, or one whole gate, under a condition. `duration_s` is its duration.

    A round has `rounds` by benchmark: all benchmarks, or, if head is slower, those on one core. A gate has the
    judgements `gate`, their `verdict`, and the slowed benchmark `planted_in`; in a round these are None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: int = Field(default=SCHEMA, alias="schema", le=SCHEMA)
    condition: Condition
    number: Count
    started_at: Moment
    duration_s: Positive
    rounds: dict[str, RoundRatio] = Field(default_factory=dict)
    gate: tuple[TimeJudgement, ...] | None = None
    verdict: Verdict | None = None
    planted_in: str | None = None
    environment: Environment


def read_trials(path: Path) -> tuple[SelfTestTrial, ...]:
    """Return the trials of a file; none if there is no file. A torn line at the end is dropped.

    Raises GateError, with its number for a bad line.
    """
    try:
        with open_input(path) as file:
            lines = file.readlines()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise GateError(f"{path}: cannot be read: {error.strerror}") from error
    whole: Iterable[bytes] = (line for line in lines if line.endswith(b"\n"))
    return tuple(_parse(path, number, line) for number, line in enumerate(whole, start=1))


def _parse(path: Path, number: int, line: bytes) -> SelfTestTrial:
    try:
        return SelfTestTrial.model_validate_json(line)
    except ValidationError as error:
        raise GateError(f"{path}: line {number} is no trial of a self-test: {what_is_wrong(error)}") from error
