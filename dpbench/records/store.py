"""JSON Lines, each safe on disk before the next case is measured.

``(case.id, round)`` is unique in a file, so `--retry failed` first moves failed records to the end of a second file,
``sweep-machine.jsonl.retried``. After an interrupted move the record is in both files or in the second one, and is
measured again.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Generic, Self

from dpbench.errors import WrongInputError
from dpbench.records.record import Outcome, Record
from dpbench.records.row import OtherKindError, Row, RowError, RowT, parse_line, to_line
from dpbench.text.files import append_line, open_locked, reason_of, refuse_links, replace_bytes, sync_folder
from dpbench.text.outputs import check_output_folder
from dpbench.text.outside import open_input


class StoreError(WrongInputError):
    pass


@dataclass(frozen=True)
class Contents(Generic[RowT]):
    """In the order of writing; `warnings` report what was dropped."""

    rows: tuple[RowT, ...]
    warnings: tuple[str, ...] = ()


def read_rows(
    path: Path, *kinds: type[RowT], leaves_out_bad_lines: bool = False, leaves_out_other_kinds: bool = False
) -> Contents[RowT]:
    """Drop a torn end with a warning. Raise StoreError, with the line's number, for any other bad line.

    If it leaves out bad lines, one warning names the first and how many there are.
    """
    rows, bad, torn = list[RowT](), list[str](), b""
    try:
        with open_input(path) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    torn = line
                    break
                try:
                    rows.append(parse_line(line, *kinds))
                except RowError as error:
                    if leaves_out_other_kinds and isinstance(error, OtherKindError):
                        continue
                    bad.append(f"{path}: line {number} {error}")
                    if not leaves_out_bad_lines:
                        raise StoreError(bad[0]) from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    left_out = [f"{bad[0]}; {len(bad)} bad {'line was' if len(bad) == 1 else 'lines were'} left out"] if bad else []
    warnings = [f"{path}: a torn line of {len(torn)} bytes at the end was dropped"] if torn else []
    return Contents(tuple(rows), (*left_out, *warnings))


class Store:
    """A file of rows. `append` and `with` lock it against other writers until `close`.

    They wait up to `patience_s` for another writer.
    """

    def __init__(self, path: Path, patience_s: float = 0.0) -> None:
        self.path, self._patience_s = path, patience_s
        self._fd: int | None = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def append(self, row: Row) -> None:
        """Write a synced line; if that fails, restore the file and raise StoreError."""
        line, fd = to_line(row), self._open()
        try:
            append_line(fd, line)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written: {reason_of(error)}") from error

    def replace(self, rows: Iterable[Row]) -> None:
        """Replace the file, and lock the new one; raise StoreError and leave the old one if that fails."""
        self._open()
        try:
            replace_bytes(self.path, b"".join(map(to_line, rows)))
            fd = open_locked(self.path)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written anew: {reason_of(error)}") from error
        self.close()
        self._fd = fd

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        if self._fd is not None:
            return self._fd
        try:
            self._fd = open_locked(self.path, self._patience_s)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written: {reason_of(error)}") from error
        return self._fd


def append_row(path: Path, row: Row, patience_s: float = 0.0) -> None:
    """Open, append and close; the folder is made if needed. Raise StoreError."""
    try:
        refuse_links(path)
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {reason_of(error)}") from error
    with Store(path, patience_s) as store:
        store.append(row)


class Retry(StrEnum):
    FAILED = "failed"


def retried_path(store: Store) -> Path:
    return store.path.with_name(f"{store.path.name}.retried")


def take_failed_out(store: Store, among: Callable[[Record], bool]) -> tuple[Record, ...]:
    """Move failed records that `among` selects to the second file; the store must be locked.

    Raise StoreError; then the store still has them all.
    """
    records = read_rows(store.path, Record).rows
    failed = tuple(record for record in records if record.outcome is not Outcome.OK and among(record))
    if failed:
        with Store(retried_path(store)) as beside:
            for record in failed:
                beside.append(record)
        store.replace(record for record in records if record not in failed)
    return failed


def sweep_path(folder: Path, spec: Path) -> Path:
    """A stopped sweep continues in this file, whose folder need not exist."""
    return folder / f"sweep-{spec.stem}.jsonl"


def new_run_path(folder: Path, command: str, ending: str = ".jsonl") -> Path:
    """Make an empty file such as ``command-20250131T120000Z.jsonl``. Raise StoreError."""
    beginning = f"{command}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    _make(folder)
    for number in count(1):
        path = folder / f"{beginning}{f'-{number}' if number > 1 else ''}{ending}"
        try:
            path.touch(exist_ok=False)
            sync_folder(folder)
        except FileExistsError:
            continue
        except OSError as error:
            raise StoreError(f"results: {str(path)!r} cannot be written: {error.strerror}") from error
        return path
    raise AssertionError("count() ends")


def drop_if_empty(path: Path) -> None:
    with suppress(OSError):
        if path.stat().st_size == 0:
            path.unlink()


def _make(folder: Path) -> None:
    try:
        check_output_folder("results", folder)
        folder.mkdir(parents=True, exist_ok=True)
    except WrongInputError as error:
        raise StoreError(str(error)) from error
