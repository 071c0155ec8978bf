"""Expected counts: a sorted JSON file, one counter a line, for each version of torch and Python."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from pydantic_core import to_json

from dpbench.errors import WrongInputError
from dpbench.records.count_record import CountRecord, diff
from dpbench.records.record import Outcome
from dpbench.text.files import replace_text
from dpbench.text.outside import read_input
from dpbench.text.validated import Frozen, what_is_wrong

FOLDER = Path("results/expected")
UPDATE = "dpbench counts --update"


class Expected(Frozen):
    """`cases` has counters by a case's id. `schema_` is raised when a counter's meaning changes."""

    format: Literal["dpbench.expected_counts"] = "dpbench.expected_counts"
    schema_: Literal[1] = Field(default=1, alias="schema")
    torch: str
    python: str
    cases: dict[str, dict[str, int]]


def update_counts(folder: Path, records: Sequence[CountRecord]) -> Path:
    """Return the file; raise WrongInputError, also if a record has no counts."""
    for record in records:
        if record.outcome is not Outcome.OK:
            raise WrongInputError(f"expected: {record.case.id} cannot be recorded: {record.why}")
    expected = expected_of(records)
    path = path_of(folder, expected)
    write(path, expected)
    return path


def check_folder(folder: Path) -> None:
    """Raise WrongInputError if the installed torch has no file."""
    versions = installed_versions()
    if versions is not None and not (path := _path(folder, *versions)).exists():
        raise _missing(path)


def installed_versions() -> tuple[str, str] | None:
    """Torch's version and Python's, as in a file's name, without importing torch; None without torch."""
    try:
        return version("torch").partition("+")[0], f"{sys.version_info.major}.{sys.version_info.minor}"
    except PackageNotFoundError:
        return None


def check_counts(folder: Path, records: Sequence[CountRecord]) -> list[str]:
    """A line for each difference; raise WrongInputError if no file can be read."""
    failed = [record for record in records if record.outcome is not Outcome.OK]
    counted = [record for record in records if record.outcome is Outcome.OK]
    if not counted:
        raise WrongInputError(f"expected: nothing could be counted: {failed[0].why}")
    now = expected_of(counted)
    lines = differences(read(path_of(folder, now)).cases, now.cases)
    return lines + [f"{record.case.id}: {record.why}" for record in failed]


def expected_of(records: Iterable[CountRecord]) -> Expected:
    """All records must have outcome ok and one environment."""
    in_order = sorted(records, key=lambda record: record.case.id)
    environment = in_order[0].environment
    assert environment is not None
    cases = {record.case.id: record.counts.by_name() for record in in_order if record.counts is not None}
    return Expected(
        torch=environment.torch.partition("+")[0],  # the rest names the build: 2.13.0+cpu
        python=".".join(environment.python.split(".")[:2]),
        cases={case: dict(sorted(counters.items())) for case, counters in cases.items()},
    )


def path_of(folder: Path, expected: Expected) -> Path:
    return _path(folder, expected.torch, expected.python)


def _path(folder: Path, torch: str, python: str) -> Path:
    return folder / f"torch-{torch}-py{python}.json"


def _missing(path: Path) -> WrongInputError:
    there = ", ".join(sorted(file.name for file in path.parent.glob("*.json"))) or "none"
    return WrongInputError(
        f"expected: {path.name} is not in {str(path.parent)!r}; there: {there}; record it by: {UPDATE}"
    )


def write(path: Path, expected: Expected) -> None:
    """Raise WrongInputError if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, to_json(expected.model_dump(by_alias=True), indent=1).decode() + "\n")
    except OSError as error:
        raise WrongInputError(f"expected: {str(path)!r} cannot be written: {error.strerror}") from error


def read(path: Path) -> Expected:
    """Raise WrongInputError, which names the files that exist if this one does not."""
    try:
        return Expected.model_validate_json(read_input(path))
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        raise WrongInputError(f"expected: {str(path)!r} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise WrongInputError(f"expected: {str(path)!r} holds no expected counts: {what_is_wrong(error)}") from error


def differences(expected: Mapping[str, Mapping[str, int]], counted: Mapping[str, Mapping[str, int]]) -> list[str]:
    lines = []
    for case in sorted(expected.keys() | counted.keys()):
        if case not in counted:
            lines.append(f"{case}: expected, not counted")
        elif case not in expected:
            lines.append(f"{case}: counted, not expected")
        else:
            lines += [f"{case}: {change}" for change in diff(expected[case], counted[case])]
    return lines
