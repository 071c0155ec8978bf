"""What the commands share: options of the same name, and how they speak."""

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from dpbench.sweep.machine_info import MachineInfo

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else there.")]


def option(text: str) -> Any:
    return typer.Option(help=text)


def example(text: str) -> str:
    return f"Example:\n\n    {text}"


def unusable(machine: MachineInfo) -> list[str]:
    """A line where the machine has GPUs that torch cannot use."""
    if not machine.unusable_gpus:
        return []
    names = ", ".join(machine.unusable_gpus)
    return [
        f"NVML sees {names}, but torch {machine.torch} can use no GPU: {machine.torch_error or 'it does not say why'}"
    ]


def show(what: RenderableType | dict[str, Any]) -> None:
    """On standard output; a dict as JSON."""
    if isinstance(what, dict):
        sys.stdout.write(json.dumps(what, indent=2, allow_nan=False) + "\n")
    else:
        Console(highlight=False).print(what)


def warn(warnings: list[str]) -> None:
    for warning in warnings:
        print(f"dpbench: warning: {warning}", file=sys.stderr)  # noqa: T201
