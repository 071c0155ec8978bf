"""Output, warnings and the standard streams.

Texts reach a terminal by `show`, `show_lines` or `warn`, which remove terminal commands.
"""

import errno
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

from dpbench.text.outside import one_line, printable


def show(what: RenderableType | dict[str, Any]) -> None:
    """Print a dict as JSON."""
    if isinstance(what, dict):
        sys.stdout.write(json.dumps(what, indent=2, allow_nan=False) + "\n")
    else:
        Console(highlight=False).print(_Printable(what), crop=False)


def show_markdown(text: str) -> None:
    sys.stdout.write(printable(text))


def show_lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{printable(line.replace(chr(10), ' '))}\n" for line in lines)


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        complain(f"warning: {warning}")


def complain(message: str) -> None:
    """A line on standard error."""
    print(f"dpbench: {one_line(message)}", file=sys.stderr)  # noqa: T201


class _Printable:
    """Texts without terminal commands; rich's own, which set styles, stay."""

    def __init__(self, drawing: RenderableType) -> None:
        self._drawing = drawing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self._drawing, options):
            yield Segment(text if control else printable(text), style, control)


class GuardedStream:
    """Never raises an OSError; `lost` is the first one that lost output, but for a reader's end.

    After a failed write the rest goes to /dev/null, so Python's flush at the exit succeeds.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Characters that the stream's encoding lacks become escapes."""
        try:
            return self._stream.write(text)
        except UnicodeEncodeError as error:
            return self.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
        except OSError as error:
            self._give_up(error)
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if self.lost is None and error.errno not in (errno.EPIPE, errno.EBADF):
            self.lost = error
        with suppress(OSError, ValueError):  # a stream without a descriptor
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextmanager
def guarded_streams() -> Iterator[GuardedStream]:
    """Keep the exit code if a reader is gone or a stream was closed before the start; yield standard output."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:  # a closed one's number must not become another file's
        os.set_inheritable(fd, True)
    os.close(fd)
    before = sys.stdout, sys.stderr
    out, err = (GuardedStream(stream or open(os.devnull, "w", encoding="utf-8")) for stream in before)  # noqa: SIM115  # kept
    sys.stdout, sys.stderr = out, err
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = before
