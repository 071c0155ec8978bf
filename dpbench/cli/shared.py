"""Options of several commands, and output: `show`, `show_lines` and `warn` remove terminal commands."""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from typer.core import TyperCommand

from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.names import Family, Size, registered
from dpbench.cases.variants import VariantName
from dpbench.errors import WrongInputError
from dpbench.text.outside import one_line, printable

RESULTS = Path("results/runs")
"""Of records and pages."""
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")]
Details = Annotated[bool, typer.Option("--details", help="Show devices, phases, exact counts and the ladder too.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the tables as markdown, for an issue on GitHub.")]


class Form(StrEnum):
    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def form_of(*, as_json: bool = False, as_markdown: bool = False) -> Form:
    """Raise WrongInputError for both."""
    if as_json and as_markdown:
        raise WrongInputError("--markdown: cannot be combined with --json; allowed: one of them")
    return Form.JSON if as_json else Form.MARKDOWN if as_markdown else Form.TEXT


_RARE = "Options for maintainers"


def option(text: str, *names: str, is_output: bool = False, completes: str | None = None, is_rare: bool = False) -> Any:
    """`names` are made of the parameter's by default.

    `is_output` says that the value is the path of a written file; a shell completes a list of variants or workloads. A
    rare option has a place at the end of a `Command`'s help.
    """
    panel = _RARE if is_rare else None
    if is_output:
        return typer.Option(*names, help=text, parser=_option_path, metavar="<path>", rich_help_panel=panel)
    complete = _completion(completes) if completes else None
    return typer.Option(*names, help=text, autocompletion=complete, rich_help_panel=panel)


class Command(TyperCommand):
    """Rare options have a group of their own in its help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        every = self.params
        rare = [param for param in every if getattr(param, "rich_help_panel", None) == _RARE]
        self.params = [param for param in every if param not in rare]
        super().format_options(ctx, formatter)
        self.params = every
        with formatter.section(_RARE):
            formatter.write_dl([record for param in rare if (record := param.get_help_record(ctx))])


def _completion(kind: str) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        names = [*VariantName] if kind == "variants" else [*map("/".join, product(Family, Size))]
        return [f"{before}{comma}{name}" for name in [*names, *registered(kind)] if name.startswith(last)]

    return complete


_REFERENCE = "Ratios are to this variant; to torch_dp, naive, or the first scheme that has times by default."
Reference = Annotated[str | None, option(_REFERENCE, completes="variants")]
WORKLOAD = typer.Argument(help="Such as convnet/base or my_model:factory.", autocompletion=_completion("workloads"))


def output_path(text: str) -> Path:
    """Raise ValueError for a null byte, and for a folder's ending, such as ``x/``, which `Path` drops."""
    if "\0" in text:
        raise ValueError(f"{text!r} cannot be written, because it has a null byte; allowed: a file")
    if text.endswith(("/", "/.")) and not os.path.isdir(text):
        raise ValueError(f"{text!r} cannot be written, because it ends like a folder; allowed: a file")
    return Path(text)


def _option_path(given: str | Path) -> Path:
    try:
        return output_path(str(given))
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from error


def example(text: str) -> str:
    return f"Example:\n\n    {text}"


def unusable(machine: MachineInfo, lists: Sequence[Sequence[str]] | None = None) -> list[str]:
    """A line if the machine has GPUs and torch can use none; nothing for lanes on the CPU."""
    if not (gpus := machine.unusable_gpus(lists)):
        return []
    names = ", ".join(gpus)
    return [
        f"NVML sees {names}, but torch {machine.torch} can use no GPU: {machine.torch_error or 'torch gives no reason'}"
    ]


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


def usage_line(message: str, command: str) -> str:
    """`message` is a parser's, such as "No such option: --x"."""
    end = "" if message.endswith((".", "?")) else "."
    return f"{message}{end} Allowed: what `{command} --help` lists."


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
