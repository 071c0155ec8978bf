"""How often machines like this called equal code slower: by a self-test, else by the gates' own twins."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from dpbench.errors import GateError
from dpbench.gate.history import HistoryLine, false_alarms_of_twins, machine_of
from dpbench.gate.judgement import FalseAlarms
from dpbench.gate.self_test.result import SelfTest
from dpbench.results.files import replace_text
from dpbench.results.record import Environment

_FILES = "self-test-*.json"


def self_test_path(results: Path, environment: Environment) -> Path:
    return results / "gate" / f"self-test-{environment.hostname}.json"


def trials_path(results: Path, hostname: str) -> Path:
    """Where a self-test records; `self_test_path` has what it says."""
    return results / "gate" / f"self-test-{hostname}.jsonl"


def write_self_test(path: Path, found: SelfTest) -> None:
    """Raises GateError."""
    try:
        replace_text(path, found.model_dump_json(indent=1) + "\n")
    except OSError as error:
        raise GateError(f"{path}: cannot be written: {error.strerror}") from error


def check_self_tests(results: Path) -> None:
    """Raises GateError for a file that `measured_false_alarms` could not read."""
    for path in _self_tests(results):
        _read(path)


def measured_false_alarms(
    results: Path, lines: Sequence[HistoryLine], environment: Environment | None
) -> FalseAlarms | None:
    """None where nothing was measured on a machine like that of this environment. Raises GateError."""
    if environment is None:
        return None
    for path in _self_tests(results):
        tested = _read(path)
        if _kind(tested.environment) == _kind(environment):
            return tested.false_alarms
    return false_alarms_of_twins(lines, environment)


def _self_tests(results: Path) -> list[Path]:
    return sorted((results / "gate").glob(_FILES))


def _kind(environment: Environment) -> Environment:
    """Containers of one kind of machine have names of their own."""
    return machine_of(environment).model_copy(update={"hostname": ""})


def _read(path: Path) -> SelfTest:
    try:
        return SelfTest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = " ".join(str(error).split())
        raise GateError(f"{path}: is no self-test's result: {reason[:200]}") from error
