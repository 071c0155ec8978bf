"""Mark the findings that the project accepts by its settings file. Pure."""

from collections.abc import Sequence, Set
from datetime import date
from fnmatch import fnmatchcase
from typing import TypeVar

from dpbench.gate.judgement import Accepted, CounterChange, Drift, TimeJudgement, Verdict

Finding = TypeVar("Finding", CounterChange, TimeJudgement, Drift)

_LEAST_DIGITS = 7


def apply_accepted(
    found: Sequence[Finding], accepted: Sequence[Accepted], commits_in_range: Set[str], today: date
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Return the same findings in the same order, with `accepted` set if an entry covers them, and notes.

    An entry covers a finding if its `benchmark` names or matches the finding's, and if its `revision` is a commit of
    base..head (`commits_in_range`, full hashes). For a drift, the revision must be the commit that began it. The last
    day of an entry is `expires`. Verdicts stay: an accepted benchmark is still slower.

    There is one note for each entry that would cover a finding if it had not expired, or if its hash were longer.
    """
    notes: dict[str, None] = {}
    marked = [_mark(each, accepted, commits_in_range, today, notes) for each in found]
    return tuple(marked), tuple(notes)


def _mark(
    found: Finding, accepted: Sequence[Accepted], commits_in_range: Set[str], today: date, notes: dict[str, None]
) -> Finding:
    if not _can_be_accepted(found):
        return found
    reasons = list[str]()
    for entry in accepted:
        if not fnmatchcase(found.benchmark, entry.benchmark):
            continue
        commits = commits_in_range if not isinstance(found, Drift) else {found.since_commit}
        named = _named(entry.revision, commits)
        where = f"accepted: {entry.benchmark!r} at {entry.revision}"
        if len(named) > 1:
            reasons.append(f"{where} is ambiguous: {len(named)} commits of base..head begin so; allowed: more digits")
        elif named and today > entry.expires:
            reasons.append(f"{where} expired on {entry.expires}")
        elif named:
            return found.model_copy(update={"accepted": entry})
    notes.update(dict.fromkeys(reasons))
    return found


def _can_be_accepted(found: CounterChange | TimeJudgement | Drift) -> bool:
    """Whether a finding is a regression, or may be one.

    UNDECIDED counts: the entry covers it if it is slower, and it needs no entry if it is not.
    """
    if isinstance(found, TimeJudgement):
        return found.verdict in (Verdict.SLOWER, Verdict.UNDECIDED)
    return not isinstance(found, CounterChange) or found.is_worse is not False


def _named(revision: str, commits: Set[str]) -> list[str]:
    if len(revision) < _LEAST_DIGITS:
        return []
    return [commit for commit in commits if commit.startswith(revision)]
