"""What the commands share: their exit codes, options of the same name, and how they speak."""

import json
import sys
from enum import IntEnum
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from dpbench.sweep.box import Box


class ExitCode(IntEnum):
    OK = 0
    NOTHING_MEASURED = 1
    NOT_AS_EXPECTED = 1
    UNRELIABLE = 1
    WRONG_INPUT = 2
    UNUSABLE_BOX = 3
    BROKEN_GATE = 3
    INTERRUPTED = 130


class UnusableBoxError(Exception):
    """This box cannot be used as it is."""


Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else there.")]


def option(text: str) -> Any:
    return typer.Option(help=text)


def example(text: str) -> str:
    return f"Example:\n\n    {text}"


def unusable(box: Box) -> list[str]:
    """A line where the box has GPUs that torch cannot use."""
    if not box.unusable_gpus:
        return []
    names = ", ".join(box.unusable_gpus)
    return [f"NVML sees {names}, but torch {box.torch} can use no GPU: {box.torch_error or 'it does not say why'}"]


def show(what: RenderableType | dict[str, Any]) -> None:
    """On standard output; a dict as JSON."""
    if isinstance(what, dict):
        sys.stdout.write(json.dumps(what, indent=2, allow_nan=False) + "\n")
    else:
        Console(highlight=False).print(what)


def warn(warnings: list[str]) -> None:
    for warning in warnings:
        print(f"dpbench: warning: {warning}", file=sys.stderr)  # noqa: T201
