"""The commands for asv (airspeed velocity): its machine file, its results."""

import platform
from pathlib import Path
from typing import Annotated, Any

import typer

from dpbench.asv.export import commit_date_ms, export, lacks
from dpbench.asv.machine_file import DEFAULT_FILE, AsvError, machine_called, stamp_machine
from dpbench.cli.shared import Json, example, option, show, show_lines, unusable, warn
from dpbench.errors import ExitCode, UnusableMachineError
from dpbench.processes.ask import ask_machine
from dpbench.records.store import Store

MachineName = Annotated[str | None, option("This machine's name in asv; the host's name by default.")]
MachineFile = Annotated[Path, option("asv's machine file.", is_output=True)]
Results = Annotated[Path, option("asv's results folder.")]
_RESULTS = Path("results/asv")


def asv_machine(
    machine: MachineName = None, machine_file: MachineFile = DEFAULT_FILE, as_json: Json = False
) -> ExitCode:
    """Write this machine into asv's machine file, with its GPUs, driver, NCCL and torch."""
    info = ask_machine()
    if warnings := unusable(info):
        raise UnusableMachineError("; ".join(warnings))
    path = _expanded(machine_file)
    entry = stamp_machine(path, _name(machine), info)
    _show_lines(dict(entry), [f"{path}:", *(f"  {name}: {text}" for name, text in entry.items())], as_json)
    return ExitCode.OK


def asv_export(
    records: Annotated[list[Path], typer.Argument(help="Files of records, such as results/runs/*.jsonl.")],
    results: Results = _RESULTS,
    machine: MachineName = None,
    machine_file: MachineFile = DEFAULT_FILE,
    as_json: Json = False,
) -> ExitCode:
    """Write step times that dpbench measured into asv's results, for asv compare and asv publish."""
    name = _name(machine)
    entry = machine_called(name, _expanded(machine_file))
    contents = [Store(file).read() for file in records]
    warn([warning for content in contents for warning in content.warnings])
    found = export([record for each in contents for record in each.records], results, entry, commit_date_ms)
    warn(list(found.left_out))
    paths = list(map(str, found.paths))
    warn(lacks(results, name) if paths else [])
    _show_lines({"written": paths, "left_out": list(found.left_out)}, paths, as_json)
    return ExitCode.OK if paths else ExitCode.NEGATIVE


def _name(machine: str | None) -> str:
    return platform.node() if machine is None else machine


def _expanded(path: Path) -> Path:
    """Return the path with ``~`` replaced. Raises AsvError if there is no such user."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise AsvError(f"--machine-file: {str(path)!r}: {error}; allowed: a path") from error


def _show_lines(facts: dict[str, Any], lines: list[str], as_json: bool) -> None:
    """Print the facts as JSON, or else the lines."""
    if as_json:
        show(facts)
    else:
        show_lines(lines)


def add_to(app: typer.Typer) -> None:
    """Add asv-machine and asv-export to the command line."""
    app.command("asv-machine", epilog=example("dpbench asv-machine"))(asv_machine)
    app.command("asv-export", epilog=example("dpbench asv-export results/runs/compare-*.jsonl"))(asv_export)
