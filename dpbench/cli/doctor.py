"""`dpbench doctor`: examine this machine, or measure it for projections."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpbench.cli.options import Json, example, option
from dpbench.cli.terminal import show, show_lines, unusable, warn
from dpbench.doctor.health import ask_health, doctor_json, doctor_text, is_reliable
from dpbench.doctor.self_test import self_test
from dpbench.doctor.write_machine import ask_measured, check_path, notes_of, write_machine_file
from dpbench.errors import ExitCode
from dpbench.jobs.probe import ask_machine
from dpbench.report.progress import progress_bar, waiting


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Skip the self-test, which takes a minute.")] = False,
    machine_file: Annotated[
        Path | None,
        option("Measure five numbers of the devices instead, and write FILE.toml for dpbench project --machine."),
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="Show each finding with its advice.")] = False,
    as_json: Json = False,
) -> ExitCode:
    """Report what this machine is, what may disturb a measurement, and which variants run. Change nothing."""
    if machine_file is not None:
        return _describe(machine_file, as_json)
    machine = ask_machine()
    warnings = unusable(machine)
    warn(warnings)
    findings = list(ask_health())
    if not quick and machine.torch is not None:
        with progress_bar(Console(stderr=True)) as progress:
            findings += self_test(machine, progress=progress)
    show(doctor_json(machine, findings, warnings) if as_json else doctor_text(machine, findings, with_details=details))
    return ExitCode.OK if is_reliable(findings) else ExitCode.NEGATIVE


def _describe(path: Path, as_json: bool) -> ExitCode:
    check_path(path)
    warn(unusable(ask_machine()))
    with waiting(Console(stderr=True), "measuring for some seconds"):
        measured = ask_measured()
    write_machine_file(path, measured)
    notes = notes_of(measured)
    command = f"dpbench project convnet/base --machine {path}"
    if as_json:
        show({"machine_file": str(path), "devices": len(measured.names), "notes": notes, "project": command})
    else:
        show_lines([f"{path}: written", *notes, f"to project on it: {command}"])
    return ExitCode.OK


def add_to(app: typer.Typer) -> None:
    app.command("doctor", epilog=example("dpbench doctor --quick"))(doctor)
