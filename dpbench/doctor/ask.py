"""Run the examination or the measurements in a child, so that the parent needs neither torch nor NVML."""

from pydantic import ValidationError

from dpbench.doctor.findings import Finding, Findings, unreliable
from dpbench.doctor.write_machine import FIELD, Measured, MeasureRequest
from dpbench.engine.interpret import ending, last_lines
from dpbench.engine.launch import Launcher, launch
from dpbench.engine.start import child_command
from dpbench.errors import UnusableMachineError

EXAMINE = child_command("dpbench.doctor.child.examine")
MEASURE = child_command("dpbench.doctor.child.measure_machine")
_EXAMINE_TIMEOUT_S, _MEASURE_TIMEOUT_S = 120.0, 300.0


def ask_health(*, launch: Launcher = launch, timeout_s: float = _EXAMINE_TIMEOUT_S) -> tuple[Finding, ...]:
    """The child's findings; its crash or time-out is the only one."""
    end = launch(EXAMINE, "", timeout_s)
    try:
        return Findings.model_validate_json(end.record).findings
    except ValidationError:
        last = " / ".join(last_lines(end.tail)[-3:])
        return (unreliable("examination", ending(end), f"a device that cannot be examined cannot be trusted: {last}"),)


def ask_measured(*, launch: Launcher = launch, timeout_s: float = _MEASURE_TIMEOUT_S) -> Measured:
    """NCCL may hang or crash, so a child that did not survive is started again without it. Raise UnusableMachineError
    if that fails too.
    """
    for with_all_reduce in (True, False):
        request = MeasureRequest(with_all_reduce=with_all_reduce)
        end = launch(MEASURE, request.model_dump_json(), timeout_s)
        try:
            return Measured.model_validate_json(end.record)
        except ValidationError:
            continue
    last = " / ".join(last_lines(end.tail)[-2:])
    raise UnusableMachineError(f"{FIELD}: measuring this machine failed: {ending(end)}: {last}")
