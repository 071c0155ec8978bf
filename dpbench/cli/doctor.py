"""`dpbench doctor`: examine this machine."""

from typing import Annotated

from dpbench.cli.options import Json, option
from dpbench.cli.terminal import show, warn
from dpbench.doctor.health import ask_health, doctor_json, doctor_text, is_reliable
from dpbench.doctor.self_test import self_test
from dpbench.errors import ExitCode
from dpbench.jobs.probe import ask_machine
from dpbench.report.progress import progress_bar


def doctor(
    quick: Annotated[bool, option("Skip the self-test, which takes a minute.", "--quick")] = False,
    details: Annotated[bool, option("Show each finding with its advice.", "--details")] = False,
    as_json: Json = False,
) -> ExitCode:
    """Report what this machine is, what may disturb a measurement, and which variants run. Change nothing."""
    machine = ask_machine()
    reason = machine.why_unusable()
    warnings = [] if reason is None else [reason]
    warn(warnings)
    findings = list(ask_health())
    if not quick and machine.torch is not None:
        with progress_bar() as progress:
            findings += self_test(machine, progress=progress)
    show(doctor_json(machine, findings, warnings) if as_json else doctor_text(machine, findings, with_details=details))
    return ExitCode.OK if is_reliable(findings) else ExitCode.NEGATIVE
