"""`dpbench doctor`: examine this machine."""

from typing import Annotated

import typer
from rich.console import Console

from dpbench.cli.options import Json, example
from dpbench.cli.terminal import show, unusable, warn
from dpbench.doctor.health import ask_health, doctor_json, doctor_text, is_reliable
from dpbench.doctor.self_test import self_test
from dpbench.errors import ExitCode
from dpbench.jobs.probe import ask_machine
from dpbench.report.progress import progress_bar


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Skip the self-test, which takes a minute.")] = False,
    details: Annotated[bool, typer.Option("--details", help="Show each finding with its advice.")] = False,
    as_json: Json = False,
) -> ExitCode:
    """Report what this machine is, what may disturb a measurement, and which variants run. Change nothing."""
    machine = ask_machine()
    warnings = unusable(machine)
    warn(warnings)
    findings = list(ask_health())
    if not quick and machine.torch is not None:
        with progress_bar(Console(stderr=True)) as progress:
            findings += self_test(machine, progress=progress)
    show(doctor_json(machine, findings, warnings) if as_json else doctor_text(machine, findings, with_details=details))
    return ExitCode.OK if is_reliable(findings) else ExitCode.NEGATIVE


def add_to(app: typer.Typer) -> None:
    app.command("doctor", epilog=example("dpbench doctor --quick"))(doctor)
