"""Which findings of a gate somebody has answered for. Pure."""

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
    """The same findings in the same order, with `accepted` where an entry covers them, and a line for each entry that
    would cover one but for its date or a hash too short.

    An entry covers what its `benchmark` names or matches, if its `revision` is a commit of base..head
    (`commits_in_range`, whole hashes), or for a drift the commit that began it. Its last day is `expires`.
    Verdicts stay: an accepted benchmark is still slower.
    """
    notes: dict[str, None] = {}
    judged = [_judge(each, accepted, commits_in_range, today, notes) for each in found]
    return tuple(judged), tuple(notes)


def _judge(
    found: Finding, accepted: Sequence[Accepted], commits_in_range: Set[str], today: date, notes: dict[str, None]
) -> Finding:
    if not _needs_answer(found):
        return found
    reasons = list[str]()
    for entry in accepted:
        if not fnmatchcase(found.benchmark, entry.benchmark):
            continue
        commits = commits_in_range if not isinstance(found, Drift) else {found.since_commit}
        named = _named(entry.revision, commits)
        where = f"accepted: {entry.benchmark!r} at {entry.revision}"
        if len(named) > 1:
            reasons.append(f"{where} is no entry: {len(named)} commits of base..head begin so; allowed: more digits")
        elif named and today > entry.expires:
            reasons.append(f"{where} expired on {entry.expires}")
        elif named:
            return found.model_copy(update={"accepted": entry})
    notes.update(dict.fromkeys(reasons))
    return found


def _needs_answer(found: CounterChange | TimeJudgement | Drift) -> bool:
    """Undecided too: were it slower it would be accepted, and were it not there would be nothing to accept."""
    if isinstance(found, TimeJudgement):
        return found.verdict in (Verdict.SLOWER, Verdict.UNDECIDED)
    return not isinstance(found, CounterChange) or found.is_worse is not False


def _named(revision: str, commits: Set[str]) -> list[str]:
    if len(revision) < _LEAST_DIGITS:
        return []
    return [commit for commit in commits if commit.startswith(revision)]
