"""Ask a short-lived child what this machine has, so that the parent imports no torch."""

from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.names import Data
from dpbench.engine.interpret import answer_in, answer_of, ending
from dpbench.engine.launch import Exit, Launcher, launch
from dpbench.engine.messages import ProbeRequest
from dpbench.engine.start import child_command

PROBE = child_command("dpbench.jobs.probe_child")
_TIMEOUT_S = 120.0


def ask_machine(
    workloads: tuple[str, ...] = (),
    data: Data = Data.RANDOM,
    *,
    launch: Launcher = launch,
    timeout_s: float = _TIMEOUT_S,
) -> MachineInfo:
    """If a user's factory crashes or hangs the child, each workload is loaded in a child of its own.

    Raises ChildError if the child fails without any workload.
    """

    def probe(*names: str) -> Exit:
        request = ProbeRequest(workloads=names, data=data)
        return launch(PROBE, request.model_dump_json(), timeout_s if names else max(timeout_s, _TIMEOUT_S))

    end = probe(*workloads)
    if machine := answer_in(end.record, MachineInfo):
        return machine
    machine = answer_of(probe() if workloads else end, MachineInfo, "probing this machine failed")
    ends = {name: probe(name) for name in workloads} if len(workloads) > 1 else {workloads[0]: end}
    errors: dict[str, str | None] = {}
    for name, end in ends.items():
        loaded = answer_in(end.record, MachineInfo)
        errors[name] = loaded.workload_errors[name] if loaded else f"loading it failed: {ending(end)}"
    return machine.model_copy(update={"workload_errors": errors})
