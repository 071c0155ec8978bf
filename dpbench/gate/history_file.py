"""The history on disk: a line for each gate, and the records of other runs beside it."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from dpbench.gate.history_line import HistoryLine, LineError, parse_line, to_line
from dpbench.results.append_only import append_line, open_locked, reason_of
from dpbench.results.record import Record
from dpbench.results.store import Store, StoreError

_GATE = "gate"
_PATIENCE_S = 5.0


class HistoryFileError(Exception):
    """One line that names the file and what is wrong with it."""


@dataclass(frozen=True)
class History:
    """The lines in the order of writing; `warnings` say what was dropped."""

    lines: tuple[HistoryLine, ...]
    warnings: tuple[str, ...] = ()


def history_path(results: Path) -> Path:
    return results / _GATE / "history.jsonl"


def append_history(path: Path, line: HistoryLine) -> None:
    """Write one line and sync it, in a folder that is made where it lacks; waits a little for another gate that writes.

    Where that fails the file is as before, and HistoryFileError is raised.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = _open_patiently(path)
        try:
            append_line(fd, to_line(line), "a line")
        finally:
            os.close(fd)
    except OSError as error:
        raise HistoryFileError(f"{path}: cannot be written: {reason_of(error)}") from error


def check_appendable(path: Path) -> None:
    """Raises HistoryFileError where `append_history` could not write, as far as that is known beforehand."""
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not os.access(there, os.W_OK):
        raise HistoryFileError(f"{path}: cannot be written; allowed: --results with a folder that can be")


def read_history(path: Path) -> History:
    """All lines, none where there is no file. A torn end is dropped with a warning.

    Raises HistoryFileError, for a bad line with its number.
    """
    try:
        with path.open("rb") as file:
            texts = file.readlines()
    except FileNotFoundError:
        return History(())
    except OSError as error:
        raise HistoryFileError(f"{path}: cannot be read: {error.strerror}") from error
    torn = texts.pop() if texts and not texts[-1].endswith(b"\n") else b""
    lines = tuple(_parse(path, number, text) for number, text in enumerate(texts, start=1))
    warning = f"{path}: a torn line of {len(torn)} bytes at the end was dropped"
    return History(lines, (warning,) if torn else ())


def read_records(results: Path) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """Those of every file below the folder but the gate's own, and a line for what could not be read."""
    records, notes = list[Record](), list[str]()
    for path in sorted(results.rglob("*.jsonl")):
        if path.relative_to(results).parts[0] == _GATE:
            continue
        try:
            contents = Store(path).read()
        except StoreError as error:
            notes.append(f"{error}; the history goes without it")
        else:
            records.extend(contents.records)
            notes.extend(contents.warnings)
    return tuple(records), tuple(notes)


def _parse(path: Path, number: int, text: bytes) -> HistoryLine:
    try:
        return parse_line(text)
    except LineError as error:
        raise HistoryFileError(f"{path}: line {number} {error}") from error


def _open_patiently(path: Path) -> int:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return open_locked(path)[0]
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
