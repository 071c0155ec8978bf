"""Ask a short-lived child what this machine has, so that the parent needs no torch."""

from pydantic import ValidationError

from dpbench.errors import ReportedError
from dpbench.run.interpret import ending, last_lines
from dpbench.run.launch import Exit, launch
from dpbench.run.messages import Question
from dpbench.run.runner import Launcher
from dpbench.run.start import child_command
from dpbench.sweep.machine_info import MachineInfo
from dpbench.sweep.names import Data

PROBE = child_command("dpbench.run.child.probe")
_TIMEOUT_S = 120.0


class ProbeError(ReportedError):
    """This machine cannot even be asked what it has."""


def ask_machine(
    workloads: tuple[str, ...] = (),
    data: Data = Data.RANDOM,
    *,
    launch: Launcher = launch,
    timeout_s: float = _TIMEOUT_S,
) -> MachineInfo:
    """What this machine has, and for each of the user's `workloads` why it does not load, or None.

    A factory that takes the child down, or never returns, is found by asking for each in a child of its own.
    Raises ProbeError where the child fails without any.
    """

    def ask(*asked: str) -> MachineInfo | Exit:
        question = Question(workloads=asked, data=data)
        end = launch(PROBE, question.model_dump_json(), timeout_s)
        try:
            return MachineInfo.model_validate_json(end.record)
        except ValidationError:
            return end

    answer = ask(*workloads)
    if isinstance(answer, MachineInfo):
        return answer
    alone = ask() if workloads else answer
    if isinstance(alone, Exit):
        raise ProbeError(
            "\n".join([f"asking this machine what it has failed: {ending(alone)}", *last_lines(alone.tail)])
        )
    answers = {name: ask(name) for name in workloads} if len(workloads) > 1 else {workloads[0]: answer}
    errors = {
        name: found.workload_errors[name] if isinstance(found, MachineInfo) else f"loading it failed: {ending(found)}"
        for name, found in answers.items()
    }
    return alone.model_copy(update={"workload_errors": errors})
