"""A machine's rate of false alarms: from a self-test, else from earlier gates' twins.

`benchmarks/gate_self_test.py` writes the result of a self-test, `results/gate/self-test-*.json`. The gate reads the
fields of `SelfTest`; the file has more.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dpbench.errors import GateError
from dpbench.gate.history import HistoryLine, machine_of
from dpbench.gate.judgement import FalseAlarms
from dpbench.records.record import Environment
from dpbench.stats.binomial import clopper_pearson
from dpbench.text.outside import one_line, read_input

EQUAL = "equal"
"""The condition of a self-test in which head is base and nothing else runs."""

_Count = Annotated[int, Field(ge=0, le=10**9)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Drawn(_Part):
    """Gates that were drawn from recorded rounds, by verdict."""

    slower: _Count
    undecided: _Count
    passed: _Count


class _Spread(_Part):
    """The recorded rounds of one benchmark."""

    rounds: int


class _Condition(_Part):
    """The gates and rounds of one condition."""

    condition: str
    spreads: tuple[_Spread, ...]
    drawn: _Drawn


class SelfTest(_Part):
    """The result of a self-test. `began` is the time of its first trial."""

    tested: tuple[_Condition, ...]
    began: str
    environment: Environment

    @model_validator(mode="after")
    def _has_false_alarms(self) -> Self:
        equal = [each for each in self.tested if each.condition == EQUAL]
        if len(equal) != 1 or not equal[0].spreads or not any(equal[0].drawn.model_dump().values()):
            raise ValueError(f"tested needs one condition {EQUAL!r}, with spreads and drawn gates")
        datetime.fromisoformat(self.began)
        return self

    @property
    def false_alarms(self) -> FalseAlarms:
        """The drawn gates of equal code while nothing else ran."""
        equal = next(each for each in self.tested if each.condition == EQUAL)
        counted = f"resampled from {equal.spreads[0].rounds} rounds of the self-test of {self.began[:10]}"
        alarms, gates = equal.drawn.slower, sum(equal.drawn.model_dump().values())
        return FalseAlarms(alarms=alarms, of=gates, upper=clopper_pearson(alarms, gates)[1], gates=counted)


def check_self_tests(results: Path) -> None:
    """Raises GateError if `measured_false_alarms` could not read one of the results."""
    for path in _self_tests(results):
        _read(path)


def measured_false_alarms(
    results: Path, lines: Sequence[HistoryLine], environment: Environment | None
) -> FalseAlarms | None:
    """Return the false alarms of a self-test on such a machine, else those of its twins.

    `lines` is the history. None if nothing was measured on such a machine. Raises GateError for an unreadable result.
    """
    if environment is None:
        return None
    for path in _self_tests(results):
        tested = _read(path)
        if _kind(tested.environment) == _kind(environment):
            return tested.false_alarms
    return false_alarms_of_twins(lines, environment)


def false_alarms_of_twins(lines: Iterable[HistoryLine], environment: Environment) -> FalseAlarms | None:
    """Count the twins that were called slower on this machine. None if no twin was judged.

    `upper` is the upper end of the two-sided 95 % interval of Clopper and Pearson.
    """
    gates = [line for line in lines if machine_of(line.environment) == machine_of(environment)]
    twins = [
        [benchmark.twin_alarmed for benchmark in line.benchmarks if benchmark.twin_alarmed is not None]
        for line in gates
    ]
    count, alarms = sum(map(len, twins)), sum(map(sum, twins))
    if count == 0:
        return None
    _, upper = clopper_pearson(alarms, count)
    measured = sum(map(bool, twins))
    counted = f"twins, one for each benchmark, of {measured} {'gate' if measured == 1 else 'gates'} on this machine"
    return FalseAlarms(alarms=alarms, of=count, upper=upper, gates=counted)


def _self_tests(results: Path) -> list[Path]:
    return sorted((results / "gate").glob("self-test-*.json"))


def _kind(environment: Environment) -> Environment:
    """The machine without its host name: each container of one kind of machine has another."""
    return machine_of(environment).model_copy(update={"hostname": ""})


def _read(path: Path) -> SelfTest:
    try:
        return SelfTest.model_validate_json(read_input(path))
    except (OSError, ValidationError) as error:
        reason = one_line(str(error))
        raise GateError(f"{path}: is no self-test's result: {reason[:200]}") from error
