"""Run the examination in a child, so that the parent needs neither torch nor NVML."""

from pydantic import ValidationError

from dpbench.doctor.findings import Finding, Findings, unreliable
from dpbench.run.interpret import ending, last_lines
from dpbench.run.launch import Launcher, launch
from dpbench.run.start import child_command

PROBE = child_command("dpbench.doctor.child.examine")
_TIMEOUT_S = 120.0


def ask_health(*, launch: Launcher = launch, timeout_s: float = _TIMEOUT_S) -> tuple[Finding, ...]:
    """Return the child's findings.

    If the child crashes or times out, return that as the only finding.
    """
    end = launch(PROBE, "", timeout_s)
    try:
        return Findings.model_validate_json(end.record).findings
    except ValidationError:
        last = " / ".join(last_lines(end.tail)[-3:])
        return (unreliable("examination", ending(end), f"a device that cannot be examined cannot be trusted: {last}"),)
