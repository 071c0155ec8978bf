"""How often a machine calls equal code slower: by a self-test, else by earlier gates' twins.

The results folder has two files of a self-test: the recorded trials (``.jsonl``) and the result (``.json``).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from dpbench.errors import GateError
from dpbench.gate.history import HistoryLine, machine_of
from dpbench.gate.judgement import FalseAlarms
from dpbench.gate.self_test.result import SelfTest
from dpbench.results.files import replace_text
from dpbench.results.record import Environment
from dpbench.stats.binomial import clopper_pearson
from dpbench.sweep.outside import one_line, read_input

_FILES = "self-test-*.json"


def self_test_path(results: Path, environment: Environment) -> Path:
    """The file with the result of a self-test on this host."""
    return results / "gate" / f"self-test-{environment.hostname}.json"


def trials_path(results: Path, hostname: str) -> Path:
    """The file with the trials that a self-test records."""
    return results / "gate" / f"self-test-{hostname}.jsonl"


def write_self_test(path: Path, found: SelfTest) -> None:
    """Replace the result of a self-test. Raises GateError if the file cannot be written."""
    try:
        replace_text(path, found.model_dump_json(indent=1) + "\n")
    except OSError as error:
        raise GateError(f"{path}: cannot be written: {error.strerror}") from error


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
    twins = [[each.twin_alarmed for each in line.benchmarks if each.twin_alarmed is not None] for line in gates]
    count, alarms = sum(map(len, twins)), sum(map(sum, twins))
    if count == 0:
        return None
    _, upper = clopper_pearson(alarms, count)
    measured = sum(map(bool, twins))
    counted = f"twins, one for each benchmark, of {measured} {'gate' if measured == 1 else 'gates'} on this machine"
    return FalseAlarms(alarms=alarms, of=count, upper=upper, gates=counted)


def _self_tests(results: Path) -> list[Path]:
    return sorted((results / "gate").glob(_FILES))


def _kind(environment: Environment) -> Environment:
    """The machine without its host name: each container of one kind of machine has another."""
    return machine_of(environment).model_copy(update={"hostname": ""})


def _read(path: Path) -> SelfTest:
    try:
        return SelfTest.model_validate_json(read_input(path))
    except (OSError, ValidationError) as error:
        reason = one_line(str(error))
        raise GateError(f"{path}: is no self-test's result: {reason[:200]}") from error
