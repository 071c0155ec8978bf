"""Count what the ranks of scripts send each other, in a child process."""

from collections.abc import Sequence

from pydantic import ValidationError

from dpbench.processes.count_all import ENVIRONMENT, LIMIT_S, CountingError
from dpbench.processes.interpret import ending, last_lines
from dpbench.processes.launch import Launcher, launch
from dpbench.processes.start import child_command
from dpbench.records.communication import ScriptJob, ScriptJobs, ScriptRecord, ScriptRecords

_COUNTER = [*ENVIRONMENT, *child_command("dpbench.processes.child.scripts")]
_IMPORT_S = 60.0


def count_scripts(
    jobs: Sequence[ScriptJob], *, launch: Launcher = launch, timeout_s: float = LIMIT_S
) -> tuple[ScriptRecord, ...]:
    """One record for each script, in order; `timeout_s` is for each.

    Raises CountingError if the child fails as a whole.
    """
    request = ScriptJobs(jobs=tuple(jobs), timeout_s=timeout_s)
    end = launch(_COUNTER, request.model_dump_json(), timeout_s * len(jobs) + _IMPORT_S)
    try:
        return ScriptRecords.model_validate_json(end.record).records
    except ValidationError:
        raise CountingError("\n".join([f"counting failed: {ending(end)}", *last_lines(end.tail)])) from None
