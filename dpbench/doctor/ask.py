"""Ask a child what may disturb measurements on this machine, so that the parent needs neither torch nor NVML."""

from pydantic import ValidationError

from dpbench.doctor.findings import Finding, Findings, unreliable
from dpbench.run.interpret import ending, last_lines
from dpbench.run.launch import launch
from dpbench.run.runner import Launcher
from dpbench.run.start import child_command

PROBE = child_command("dpbench.doctor.child.examine")
_TIMEOUT_S = 120.0


def ask_health(*, launch: Launcher = launch, timeout_s: float = _TIMEOUT_S) -> tuple[Finding, ...]:
    """Its findings; or, where examining takes the child down, that."""
    end = launch(PROBE, "", timeout_s)
    try:
        return Findings.model_validate_json(end.record).findings
    except ValidationError:
        last = " / ".join(last_lines(end.tail)[-3:])
        return (unreliable("examination", ending(end), f"a device that cannot be examined cannot be trusted: {last}"),)
