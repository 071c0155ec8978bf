"""A task of a child: the module that does it, what it is asked and what it answers, both as JSON.

    task            request         answer          module
    PROBE           ProbeRequest    MachineInfo     jobs/probe_child.py              report what this machine has
    COUNTER         CountJobs       CountRecords    jobs/count_child.py              count cases
    SCRIPT_COUNTER  ScriptJobs      ScriptRecords   jobs/scripts_child.py            count what a script's ranks send
    LOCKSTEP        LockstepJobs    LockstepRounds  jobs/lockstep_child.py           a gate's round
    LISTER          ListJobs        Listings        jobs/listing_child.py            the benchmarks of a commit
    COMPILER        CompileJob      Frozen          jobs/compile_child.py            compile a commit's files
    TRACER          TraceJob        TraceRecord     jobs/trace_child.py              profile one step of a case
    CHOOSER         AutoRequest     AutoChoices     jobs/ways_child.py               the wrapper's choice on a machine
    EXAMINE         Frozen          Findings        doctor/child/examine.py          look at this machine's devices

A round is no task: its process stays, and forks for each case (`jobs/round.py`).
"""

from dataclasses import dataclass
from typing import Generic

from pydantic import BaseModel

from dpbench.engine.interpret import Answer, ChildError, answer_in, ending, last_lines
from dpbench.engine.launch import Exit, Launcher, launch
from dpbench.engine.start import child_command


@dataclass(frozen=True)
class Ended(Generic[Answer]):
    """How a task ended. It is done if there is an answer, even if the child crashed after sending it."""

    answer: Answer | None
    exit: Exit

    @property
    def why(self) -> str:
        """How the child ended, and the last line that it printed."""
        return ": ".join([ending(self.exit), *last_lines(self.exit.tail)[-1:]])

    def answered(self, failed: str) -> Answer:
        """Raise ChildError, whose text begins with `failed` and has the last lines, if there is no answer."""
        if self.answer is None:
            raise ChildError("\n".join([f"{failed}: {ending(self.exit)}", *last_lines(self.exit.tail)]))
        return self.answer


@dataclass(frozen=True)
class Task(Generic[Answer]):
    """`module` gives its function `respond` to `engine.child.answer`. `environment` are variables, as NAME=VALUE."""

    module: str
    answer: type[Answer]
    environment: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        return [*(("env", *self.environment) if self.environment else ()), *child_command(self.module)]

    def run(self, request: BaseModel, timeout_s: float, launch: Launcher = launch) -> Ended[Answer]:
        """Raises OSError if the child cannot be started."""
        end = launch(self.command, request.model_dump_json(by_alias=True), timeout_s)
        return Ended(answer_in(end.record, self.answer), end)
