"""Have cases counted by a child, and hear its answers."""

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from dpbench.errors import ReportedError, WrongInputError
from dpbench.results.counts import CountRecord
from dpbench.results.record import Outcome
from dpbench.run.interpret import ending, last_lines
from dpbench.run.launch import launch
from dpbench.run.messages import CountJob, CountJobs, CountRecords
from dpbench.run.runner import Launcher
from dpbench.run.start import child_command
from dpbench.sweep.case import Case

# Equal in every process: the order of sets of strings, one thread, and no GPU, which would take the simulator's place.
ENVIRONMENT = ["env", "PYTHONHASHSEED=0", "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES="]
COUNTER = [*ENVIRONMENT, *child_command("dpbench.run.child.count")]


class NotCountableError(WrongInputError):
    """One line: what cannot be counted, naming the field, its value and what is allowed."""


class CountingError(ReportedError):
    """Nothing could be counted: what went wrong, and the child's last lines."""


def count_all(
    cases: Sequence[Case],
    *,
    events: Path | None = None,
    tree: Path | None = None,
    launch: Launcher = launch,
    timeout_s: float = 120.0,
) -> tuple[CountRecord, ...]:
    """A record for each case, in their order. `events` gets the recording of the only case there is.

    `tree` is the folder of a commit whose wrapper is counted. `timeout_s` is for each case. Raises CountingError where
    the child that counts fails as a whole.
    """
    if not cases:
        return ()
    if events is not None:
        assert len(cases) == 1
        _check_writable(events)
    jobs = tuple(CountJob(case=case, events=str(events.resolve()) if events else None) for case in cases)
    asked = CountJobs(jobs=jobs, timeout_s=timeout_s, tree=str(tree) if tree else None)
    end = launch(COUNTER, asked.model_dump_json(), timeout_s * (len(cases) + 1))
    try:
        return CountRecords.model_validate_json(end.record).records
    except ValidationError:
        raise CountingError("\n".join([f"counting failed: {ending(end)}", *last_lines(end.tail)])) from None


def countable(records: tuple[CountRecord, ...]) -> tuple[CountRecord, ...]:
    """The records themselves. Raises NotCountableError for the first that a child refused to count."""
    for record in records:
        if record.outcome is Outcome.SKIPPED:
            raise NotCountableError(record.reason)
    return records


def _check_writable(events: Path) -> None:
    place = events if events.exists() else events.parent
    if events.is_dir() or not os.access(place, os.W_OK):
        raise NotCountableError(f"events: {str(events)!r} cannot be written; allowed: a file in a folder that is there")
