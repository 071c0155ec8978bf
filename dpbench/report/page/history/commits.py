"""The records of two commits, for `dpbench report --commits`. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from dpbench.analysis.compare import differences
from dpbench.gate.history import machine_of
from dpbench.records.record import Record
from dpbench.report.page.inputs import PageInputError, PageInputs
from dpbench.text.outside import quoted

_SHORT = 10
_MOST_NAMED = 8


def of_two_commits(page_inputs: PageInputs, before: str, after: str) -> PageInputs:
    """Return the records of two commits, given by their first digits, in this order.

    Records of a changed working tree are of no commit. Raise PageInputError.
    """
    clean: dict[str, list[Record]] = {}
    for record in page_inputs.records:
        if record.environment is not None and record.environment.commit and not record.environment.dirty:
            clean.setdefault(record.environment.commit, []).append(record)
    first, last = _full(before, list(clean)), _full(after, list(clean))
    if first == last:
        raise PageInputError(f"--commits: {quoted(before)} and {quoted(after)} are one commit; allowed: two")
    machines = [{machine_of(each.environment) for each in clean[name] if each.environment} for name in (first, last)]
    if not machines[0] & machines[1]:
        unlike = ", ".join(differences([*machines[0], *machines[1]]))
        raise PageInputError(
            f"--commits: no machine has records of both, which differ in {unlike}; allowed: one machine"
        )
    return replace(page_inputs, records=[*clean[first], *clean[last]], commit_dates={first: 0.0, last: 1.0})


def _full(asked: str, known: Sequence[str]) -> str:
    """Return the only known commit that begins with `asked`."""
    found = [commit for commit in known if asked and commit.startswith(asked.lower())]
    if len(found) == 1:
        return found[0]
    named = ", ".join(each[:_SHORT] for each in known[:_MOST_NAMED]) or "none, the records have no clean commit"
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    is_what = f"begins {len(found)} commits" if found else "is no clean commit of the records"
    raise PageInputError(f"--commits: {quoted(asked)} {is_what}; allowed: {named}{more}")
