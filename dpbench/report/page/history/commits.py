"""Two commits: the records of each, and each case's time after over its time before. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpbench.errors import WrongInputError
from dpbench.gate.history import machine_of
from dpbench.results.compare import differences
from dpbench.results.record import Environment, Outcome, Record
from dpbench.results.summary import Summary, summarise
from dpbench.results.winner import is_above_one
from dpbench.stats.rounds import Estimate, ratio_of_rounds
from dpbench.sweep.case import Case
from dpbench.sweep.outside import shown

_SHORT = 10
_MOST_NAMED = 8


class CommitOptionError(WrongInputError):
    """One line with a commit that the records do not have, or have twice, and the commits that they have."""


@dataclass(frozen=True)
class Effect:
    """A case at both commits. `ratio` is the time after over that before, None if either has no time."""

    case: Case
    before: Summary
    after: Summary
    ratio: Estimate | None

    @property
    def is_slower(self) -> bool:
        """Whether the whole interval is above 1."""
        return self.ratio is not None and is_above_one(self.ratio)

    @property
    def is_faster(self) -> bool:
        """Whether the whole interval is below 1."""
        return self.ratio is not None and self.ratio.high is not None and self.ratio.high < 1

    @property
    def is_sure(self) -> bool:
        return self.is_slower or self.is_faster


@dataclass(frozen=True)
class MachineEffects:
    """The cases of one machine at both commits, the largest sure effect first.

    `before` and `after` are the two environments, `differing` their fields that differ besides the commit.
    `unmatched` counts cases that only one commit has.
    """

    before: Environment
    after: Environment
    effects: tuple[Effect, ...]
    unmatched: int

    @property
    def differing(self) -> dict[str, tuple[object, ...]]:
        found = differences([self.before, self.after])
        return {name: values for name, values in found.items() if name not in ("commit", "dirty")}


@dataclass(frozen=True)
class TwoCommits:
    """Two commits on each machine that has both. `of_unlike` is set if no machine has both: then one pair has all."""

    before: str
    after: str
    machines: tuple[MachineEffects, ...]
    of_unlike: bool
    changed_trees: int


def two_commits(records: Sequence[Record], before: str, after: str) -> TwoCommits:
    """Compare two commits, given by their first digits.

    Records of a changed working tree are of no commit and are left out. Raise CommitOptionError.
    """
    known = list(dict.fromkeys(each.environment.commit for each in records if each.environment))
    names = _found(before, known), _found(after, known)
    if names[0] == names[1]:
        raise CommitOptionError(f"--commits: {shown(before)} and {shown(after)} are one commit; allowed: two")
    own = [each for each in records if each.environment is not None and each.environment.commit in names]
    clean = [each for each in own if each.environment is not None and not each.environment.dirty]
    sides = [_by_machine(each for each in clean if _commit(each) == name) for name in names]
    for name, side in zip(names, sides, strict=True):
        if not side:
            raise CommitOptionError(
                f"--commits: all records of {name[:_SHORT]} are of a changed working tree; allowed: a commit as it is"
            )
    both = [machine for machine in sides[0] if machine in sides[1]]
    pairs = [(sides[0][machine], sides[1][machine]) for machine in both] or [(_all(sides[0]), _all(sides[1]))]
    machines = tuple(_effects(*pair) for pair in pairs)
    return TwoCommits(names[0], names[1], machines, not both, len(own) - len(clean))


def _found(asked: str, known: Sequence[str | None]) -> str:
    """Return the only known commit that begins with `asked`."""
    commits = [each for each in known if each is not None]
    found = [each for each in commits if asked and each.startswith(asked.lower())]
    if len(found) == 1:
        return found[0]
    named = ", ".join(each[:_SHORT] for each in commits[:_MOST_NAMED]) or "none, the records name no commit"
    more = f" and {len(commits) - _MOST_NAMED} more" if len(commits) > _MOST_NAMED else ""
    is_what = f"begins {len(found)} commits" if found else "is no commit of the records"
    raise CommitOptionError(f"--commits: {shown(asked)} {is_what}; allowed: {named}{more}")


def _commit(record: Record) -> str | None:
    return None if record.environment is None else record.environment.commit


def _by_machine(records: Iterable[Record]) -> dict[Environment, list[Record]]:
    found: dict[Environment, list[Record]] = {}
    for each in records:
        assert each.environment is not None
        found.setdefault(machine_of(each.environment), []).append(each)
    return found


def _all(side: dict[Environment, list[Record]]) -> list[Record]:
    return [record for records in side.values() for record in records]


def _effects(before: Sequence[Record], after: Sequence[Record]) -> MachineEffects:
    sides = [_summaries(before), _summaries(after)]
    effects = [_effect(case, sides[0][case], sides[1][case]) for case in sides[0] if case in sides[1]]
    first, last = (next(each.environment for each in side if each.environment) for side in (before, after))
    ranked = sorted(effects, key=lambda each: (not each.is_sure, -_size(each)))
    return MachineEffects(first, last, tuple(ranked), len(sides[0].keys() ^ sides[1].keys()))


def _summaries(records: Sequence[Record]) -> dict[Case, Summary]:
    of_case: dict[Case, dict[tuple[str, int], Record]] = {}
    for each in records:
        of_case.setdefault(each.case, {})[each.run, each.round] = each  # a file that is read twice counts once
    return {case: summarise(list(found.values())) for case, found in of_case.items()}


def _effect(case: Case, before: Summary, after: Summary) -> Effect:
    is_timed = before.outcome is after.outcome is Outcome.OK
    return Effect(case, before, after, ratio_of_rounds(after.step_times_s, before.step_times_s) if is_timed else None)


def _size(found: Effect) -> float:
    """Return the factor between both times, 1 or more, whichever is longer."""
    return 0.0 if found.ratio is None else max(found.ratio.value, 1 / found.ratio.value)
