"""Ask a short-lived child what this machine has, so that the parent imports no torch."""

from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.names import Data
from dpbench.engine.interpret import ending
from dpbench.engine.launch import Launcher, launch
from dpbench.engine.messages import ProbeRequest
from dpbench.engine.task import Ended, Task

PROBE = Task("dpbench.jobs.probe_child", MachineInfo)
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

    def probe(*names: str) -> Ended[MachineInfo]:
        limit_s = timeout_s if names else max(timeout_s, _TIMEOUT_S)
        return PROBE.run(ProbeRequest(workloads=names, data=data), limit_s, launch)

    ended = probe(*workloads)
    if ended.answer:
        return ended.answer
    machine = (probe() if workloads else ended).answered("probing this machine failed")
    probes = {name: probe(name) for name in workloads} if len(workloads) > 1 else {workloads[0]: ended}
    errors = {
        name: one.answer.workload_errors[name] if one.answer else f"loading it failed: {ending(one.exit)}"
        for name, one in probes.items()
    }
    return machine.model_copy(update={"workload_errors": errors})
