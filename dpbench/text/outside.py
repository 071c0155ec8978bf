"""Only regular files of bounded size are read, and no text commands a terminal.

A commit's subject or an exception may hold characters that move a terminal's cursor. `printable` and `one_line` are the
only ways to a terminal.
"""

import errno
import json
import os
import reprlib
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

MOST_BYTES = 64 << 20
"""The limit of a file that is read as a whole."""
MOST_LINES_BYTES = 1 << 30
"""The limit of a file of lines: records, a history, trials."""
MOST_NAMES = 4
"""A line lists so many names that share a reason."""
_MOST_DOTS = 1000  # in a line: tomllib takes 8 GB for a key of 50,000 parts
_REPR = reprlib.Repr()
_REPR.maxstring = 80


def printable(text: str) -> str:
    """A space stands for each character that is not printable, newlines excepted."""
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else " " for c in text)


def one_line(text: str) -> str:
    return " ".join(printable(text).split())


def shortened(text: str, letters: int = 600) -> str:
    """As one line, with an ellipsis for what has no room."""
    line = one_line(text)
    return line if len(line) <= letters else f"{line[:letters]}…"


def by_reason(reasons: Iterable[tuple[object, str]]) -> list[str]:
    """Lines ``name: reason``, and one line for all names of a reason: ``a, b: ...``, or ``a and 39 more: ...``."""
    names: dict[str, dict[str, None]] = {}
    for name, reason in reasons:
        names.setdefault(reason, {})[str(name)] = None
    lists = [(list(of_reason), reason) for reason, of_reason in names.items()]
    return [
        f"{', '.join(listed) if len(listed) <= MOST_NAMES else f'{listed[0]} and {len(listed) - 1} more'}: {reason}"
        for listed, reason in lists
    ]


def quoted(value: object) -> str:
    """The repr, shortened in the middle."""
    return _REPR.repr(value)


def open_input(path: Path, most_bytes: int = MOST_LINES_BYTES) -> BinaryIO:
    """Raise OSError for a file that cannot be read, is not regular, or is larger than `most_bytes`."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO would wait for a writer
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            is_folder = stat.S_ISDIR(status.st_mode)
            reason = os.strerror(errno.EISDIR) if is_folder else "not a regular file"
            raise OSError(errno.EISDIR if is_folder else errno.EINVAL, reason, str(path))
        if status.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"larger than {most_bytes >> 20} MiB", str(path))
    except OSError:
        os.close(fd)
        raise
    return os.fdopen(fd, "rb")


def read_input(path: Path) -> bytes:
    """Raise OSError as `open_input` does for `MOST_BYTES`."""
    with open_input(path, MOST_BYTES) as file:
        return file.read(MOST_BYTES)


def read_json(path: Path) -> Any:
    """Raise OSError, or ValueError for no JSON or deep nesting."""
    try:
        return json.loads(read_input(path).decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_toml(path: Path) -> dict[str, Any]:
    """Raise OSError, or ValueError for no TOML or deep nesting."""
    text = read_input(path).decode()
    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
        raise ValueError(f"a line has more than {_MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
