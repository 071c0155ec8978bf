"""A bisection as lines of text and as JSON, and its exit codes."""

from collections.abc import Iterator
from typing import Any

from dpbench.gate.bisect.result import Bisection, BisectStep
from dpbench.gate.judgement import CommitFacts
from dpbench.report.gate.what_changed import cause_lines
from dpbench.sweep.outside import one_line

SCHEMA = 1
FOUND, LEFT = 0, 2
"""Exit codes: the commit is found; several commits are left."""


def exit_code(found: Bisection) -> int:
    return LEFT if found.first_bad is None else FOUND


def step_line(step: BisectStep) -> str:
    """Return one line for a measured commit: its answer, hash and subject, and why."""
    return one_line(f"{step.answer}: {_commit(step.commit)}: {step.why}")


def outcome_lines(found: Bisection) -> Iterator[str]:
    """Yield the commit, its author's date and the code that did it, or the commits that are left."""
    searched = f"by {found.measured}, in {found.commits:,} commits and {len(found.steps):,} steps"
    if found.first_bad is None:
        yield one_line(f"Undecided: the first bad commit is one of {len(found.suspects):,}, {searched}")
        yield from (f"  {_commit(each)}" for each in found.suspects)
        return
    yield one_line(f"First bad commit: {_commit(found.first_bad)}")
    yield one_line(f"by {found.first_bad.author} on {found.first_bad.author_date}, {searched}")
    if found.change is not None:
        yield one_line(f"{found.change.counter}: {found.change.base} -> {found.change.head}")
    if found.blame is not None:
        yield from (f"    {line}" for line in cause_lines(found.blame))


def bisect_json(found: Bisection) -> dict[str, Any]:
    """Return ``{"schema", "exit_code", "first_bad", ...}`` and the fields of `Bisection`."""
    first = None if found.first_bad is None else found.first_bad.model_dump(mode="json")
    return {"schema": SCHEMA, "exit_code": exit_code(found), "first_bad": first, **found.model_dump(mode="json")}


def _commit(commit: CommitFacts) -> str:
    return one_line(f"{commit.short} {commit.subject}")
