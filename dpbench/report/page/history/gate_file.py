"""The gate's history as an input of a page: which files hold it, and their lines."""

import re
from dataclasses import dataclass
from pathlib import Path

from pydantic_core import from_json

from dpbench.gate.history import HistoryFileError, HistoryLine, parse_history_line
from dpbench.results.store import StoreError
from dpbench.sweep.outside import open_input

# A field that each line of the history has, and no record. In a JSON string its quotes would be escaped.
_MARK = re.compile(rb'"base_commit"\s*:')


@dataclass(frozen=True)
class GateContents:
    """The gates of a file in the order of writing. `warnings` say which lines were left out."""

    lines: tuple[HistoryLine, ...]
    warnings: tuple[str, ...] = ()


def holds_gates(path: Path) -> bool:
    """Return whether the first line that is JSON is one of a gate. Raise StoreError."""
    try:
        with open_input(path) as lines:
            for line in lines:
                if _MARK.search(line):
                    return True
                if _is_json(line):
                    return False
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    return False


def read_gates(path: Path) -> GateContents:
    """Return the gates. One warning names the first bad line and how many there are. Raise StoreError.

    A torn end is left out with a warning of its own.
    """
    found: list[HistoryLine] = []
    bad: list[str] = []
    torn = []
    try:
        with open_input(path) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    torn = [f"{path}: a torn line of {len(line)} bytes at the end was dropped"]
                    continue
                try:
                    found.append(parse_history_line(f"{path}: line {number}", line))
                except HistoryFileError as error:
                    bad.append(str(error))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    left_out = [f"{bad[0]}; {len(bad)} bad {'line was' if len(bad) == 1 else 'lines were'} left out"] if bad else []
    return GateContents(tuple(found), (*left_out, *torn))


def _is_json(line: bytes) -> bool:
    try:
        from_json(line)
    except ValueError:
        return False
    return True
