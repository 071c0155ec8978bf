"""What the commands share: options of the same name, output and warnings."""

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from dpbench.sweep.machine_info import MachineInfo

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")]


def option(text: str) -> Any:
    """Return an option with this help text."""
    return typer.Option(help=text)


def example(text: str) -> str:
    """Return the end of a command's help."""
    return f"Example:\n\n    {text}"


def unusable(machine: MachineInfo) -> list[str]:
    """Return one line if the machine has GPUs and torch can use none, else nothing."""
    if not machine.unusable_gpus:
        return []
    names = ", ".join(machine.unusable_gpus)
    return [
        f"NVML sees {names}, but torch {machine.torch} can use no GPU: {machine.torch_error or 'torch gives no reason'}"
    ]


def show(what: RenderableType | dict[str, Any]) -> None:
    """Print on standard output; a dict as JSON."""
    if isinstance(what, dict):
        sys.stdout.write(json.dumps(what, indent=2, allow_nan=False) + "\n")
    else:
        Console(highlight=False).print(what)


def warn(warnings: list[str]) -> None:
    """Print each as a line on standard error."""
    for warning in warnings:
        print(f"dpbench: warning: {warning}", file=sys.stderr)  # noqa: T201
