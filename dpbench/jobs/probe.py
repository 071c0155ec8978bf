"""Ask a short-lived child what this machine has, so that the parent imports no torch."""

from pydantic import ValidationError

from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.names import Data
from dpbench.engine.interpret import ending, last_lines
from dpbench.engine.launch import Exit, Launcher, launch
from dpbench.engine.messages import ProbeRequest
from dpbench.engine.start import child_command
from dpbench.errors import ReportedError

PROBE = child_command("dpbench.jobs.probe_child")
_TIMEOUT_S = 120.0


class ProbeError(ReportedError):
    """The ending and the last lines of the child that probes this machine."""


def ask_machine(
    workloads: tuple[str, ...] = (),
    data: Data = Data.RANDOM,
    *,
    launch: Launcher = launch,
    timeout_s: float = _TIMEOUT_S,
) -> MachineInfo:
    """`workload_errors` has for each user's workload the reason why it does not load, or None. A factory may crash or
    hang the child; then each workload, to find that one, is loaded in a child of its own. Raises ProbeError if the
    child fails without any workload.
    """

    def probe(*names: str) -> MachineInfo | Exit:
        request = ProbeRequest(workloads=names, data=data)
        end = launch(PROBE, request.model_dump_json(), timeout_s if names else max(timeout_s, _TIMEOUT_S))
        try:
            return MachineInfo.model_validate_json(end.record)
        except ValidationError:
            return end

    machine = probe(*workloads)
    if isinstance(machine, MachineInfo):
        return machine
    without_workloads = probe() if workloads else machine
    if isinstance(without_workloads, Exit):
        reason = f"probing this machine failed: {ending(without_workloads)}"
        raise ProbeError("\n".join([reason, *last_lines(without_workloads.tail)]))
    found_of = {name: probe(name) for name in workloads} if len(workloads) > 1 else {workloads[0]: machine}
    errors = {
        name: found.workload_errors[name] if isinstance(found, MachineInfo) else f"loading it failed: {ending(found)}"
        for name, found in found_of.items()
    }
    return without_workloads.model_copy(update={"workload_errors": errors})
