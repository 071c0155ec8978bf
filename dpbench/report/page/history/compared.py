"""Two commits compared: each case's time after over its time before, and the page of what surely changed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dpbench.cases.case import Case
from dpbench.errors import WrongInputError
from dpbench.gate.history import machine_of
from dpbench.records.compare import differences
from dpbench.records.record import Environment, Outcome, Record
from dpbench.records.summary import Summary, summarise
from dpbench.records.winner import is_above_one
from dpbench.report.headline import place
from dpbench.report.page.drawing import intervals, number_axis, rows_of
from dpbench.report.page.inputs import PageInputs
from dpbench.report.page.machines import by_machine
from dpbench.report.page.parts import ALL, Columns, DataRow, MachinePart, Page, Panel, Section
from dpbench.report.page.tables import MOST_ROWS, raw_table, shown_value
from dpbench.report.page.theme import BAD, GOOD, TWO_LINES_PX, coloured
from dpbench.report.units import estimate, number
from dpbench.stats.rounds import Estimate, ratio_of_rounds
from dpbench.text.outside import quoted

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
        raise CommitOptionError(f"--commits: {quoted(before)} and {quoted(after)} are one commit; allowed: two")
    own = [record for record in records if record.environment is not None and record.environment.commit in names]
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
    found = [commit for commit in commits if asked and commit.startswith(asked.lower())]
    if len(found) == 1:
        return found[0]
    named = ", ".join(each[:_SHORT] for each in commits[:_MOST_NAMED]) or "none, the records name no commit"
    more = f" and {len(commits) - _MOST_NAMED} more" if len(commits) > _MOST_NAMED else ""
    is_what = f"begins {len(found)} commits" if found else "is no commit of the records"
    raise CommitOptionError(f"--commits: {quoted(asked)} {is_what}; allowed: {named}{more}")


def _commit(record: Record) -> str | None:
    return None if record.environment is None else record.environment.commit


def _by_machine(records: Iterable[Record]) -> dict[Environment, list[Record]]:
    found: dict[Environment, list[Record]] = {}
    for record in records:
        assert record.environment is not None
        found.setdefault(machine_of(record.environment), []).append(record)
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
    for record in records:
        of_case.setdefault(record.case, {})[record.run, record.round] = record  # a file that is read twice counts once
    return {case: summarise(list(found.values())) for case, found in of_case.items()}


def _effect(case: Case, before: Summary, after: Summary) -> Effect:
    is_timed = before.outcome is after.outcome is Outcome.OK
    return Effect(case, before, after, ratio_of_rounds(after.step_times_s, before.step_times_s) if is_timed else None)


def _size(effect: Effect) -> float:
    """Return the factor between both times, 1 or more, whichever is longer."""
    return 0.0 if effect.ratio is None else max(effect.ratio.value, 1 / effect.ratio.value)


_MS = 1e-3
_BETWEEN = " · "
"""The axis writes what follows it into a second line."""
_MOST_DRAWN = 40
_MOST_LISTED = 2000
_MOST_LETTERS = 300
_SLOWER, _FASTER, _SAME = "slower", "faster", "not decided"


def compared_page(page_inputs: PageInputs, before: str, after: str) -> Page:
    """Return the page of two commits, given by their first digits. Raise CommitOptionError."""
    both = two_commits(page_inputs.records, before, after)
    records = [
        record
        for record in page_inputs.records
        if record.environment and record.environment.commit in (both.before, both.after)
    ]
    table = raw_table(by_machine(records))
    notes = [*page_inputs.left_out, *_notes(both)]
    if page_inputs.gates or page_inputs.elastic or page_inputs.projections:
        notes.append("This page compares records. Gates, elastic runs and projections are left out.")
    if table.left_out:
        notes.append(f"The table of all cases has the first {MOST_ROWS:,}; {table.left_out:,} more are left out.")
    title = f"dpbench: {both.before[:_SHORT]} and {both.after[:_SHORT]} compared"
    return Page(title, notes, [_part(number, each, both) for number, each in enumerate(both.machines)], [], table)


def _notes(both: TwoCommits) -> Iterator[str]:
    if both.of_unlike:
        yield "No machine has records of both commits. A change may come from the machine; the differences are below."
    if both.changed_trees:
        yield f"{both.changed_trees:,} records of a changed working tree are left out."
    unmatched = sum(machine.unmatched for machine in both.machines)
    if unmatched:
        yield f"{unmatched:,} cases were measured at one of the commits only and are left out."


def _part(number: int, machine_effects: MachineEffects, both: TwoCommits) -> MachinePart:
    sure = [effect for effect in machine_effects.effects if effect.is_sure]
    ended = [
        each for each in machine_effects.effects if each.ratio is None and each.before.outcome != each.after.outcome
    ]
    others = [each for each in machine_effects.effects if not each.is_sure and each not in ended]
    panels = [
        *([_sure_panel(sure, both)] if sure else []),
        *([_ended_panel(ended, both)] if ended else []),
        *([_folded_panel(others, both)] if others else []),
    ]
    sections = [
        *([Section(f"m{number}-changes", "What changed, and how sure is that?", panels)] if panels else []),
        Section(f"m{number}-environment", "What else differs?", [_environments(machine_effects, both)]),
    ]
    devices = ", ".join(sorted(set(machine_effects.after.gpus))) or machine_effects.after.cpu_model
    return MachinePart(
        f"{machine_effects.after.hostname}: {devices}", _answer(machine_effects, both), None, [], sections
    )


def _answer(machine_effects: MachineEffects, both: TwoCommits) -> str:
    slower, faster = (
        [effect for effect in machine_effects.effects if getattr(effect, name)] for name in ("is_slower", "is_faster")
    )
    timed = sum(each.ratio is not None for each in machine_effects.effects)
    if not timed:
        return "No case has times at both commits."
    if not slower and not faster:
        return f"No sure change in {timed:,} {_cases(timed)} from {both.before[:_SHORT]} to {both.after[:_SHORT]}."
    return (
        f"From {both.before[:_SHORT]} to {both.after[:_SHORT]}: of {timed:,} {_cases(timed)}, {len(slower):,} slower"
        f"{_most(slower)}, {len(faster):,} faster{_most(faster)}."
    )


def _most(effects: Sequence[Effect]) -> str:
    """Return the largest effect, such as `` (by up to +12.0 %)``."""
    if not effects or effects[0].ratio is None:
        return ""
    return f" (by up to {_growth(effects[0])})"


def _cases(count: int) -> str:
    return "case" if count == 1 else "cases"


def _growth(effect: Effect) -> str:
    assert effect.ratio is not None
    return f"{100 * (effect.ratio.value - 1):+.1f} %"


def _columns(both: TwoCommits) -> Columns:
    columns = {"variant": "variant", "setting": "setting", "change": "change"}
    columns |= {"shown": "time after over before [95 % interval]", "before": f"{both.before[:_SHORT]}, ms"}
    return columns | {"after": f"{both.after[:_SHORT]}, ms", "rounds": "rounds"}


def _sure_panel(effects: Sequence[Effect], both: TwoCommits) -> Panel:
    rows = [_row(each) for each in effects[:_MOST_DRAWN]]
    colour = coloured("verdict", [(_SLOWER, BAD), (_FASTER, GOOD)])
    y = rows_of("row", labelExpr=f"split(datum.label, '{_BETWEEN}', 2)", labelBaseline="bottom")
    x = number_axis("ratio", "time after over before", log=True)
    spec = intervals(x, colour, _columns(both), {"step": TWO_LINES_PX}, y)
    cut = f" The first {_MOST_DRAWN} of {len(effects):,} are shown." if len(effects) > _MOST_DRAWN else ""
    text = (
        "Sorted by effect. Each line is a 95 % interval that does not contain 1. One case in twenty looks changed by "
        "chance, and machines drift between runs: dpbench gate measures two commits side by side to confirm a change."
        f"{cut}"
    )
    return Panel("changed", "Surely changed", text, _columns(both), {ALL: rows}, spec)


def _folded_panel(effects: Sequence[Effect], both: TwoCommits) -> Panel:
    rows = [_row(each) for each in effects[:_MOST_LISTED]]
    text = "Their intervals contain 1, or a commit has one round only or no times."
    title = f"{len(effects):,} {_cases(len(effects))} without a sure change"
    return Panel("unchanged", title, text, _columns(both), {ALL: rows}, is_folded=True)


def _row(effect: Effect) -> DataRow:
    case, ratio = effect.case, effect.ratio
    return {
        "row": f"{case.variant}{_BETWEEN}{place(case)}",
        "variant": str(case.variant),
        "setting": place(case),
        "ratio": None if ratio is None else ratio.value,
        "low": None if ratio is None else ratio.low,
        "high": None if ratio is None else ratio.high,
        "change": "-" if ratio is None else _growth(effect),
        "shown": "-" if ratio is None else estimate(ratio),
        "verdict": _SLOWER if effect.is_slower else _FASTER if effect.is_faster else _SAME,
        "before": _time(effect.before),
        "after": _time(effect.after),
        "rounds": f"{effect.before.rounds_ok}, {effect.after.rounds_ok}",
    }


def _time(summary: Summary) -> str:
    return summary.outcome.replace("_", " ") if summary.step_time_s is None else number(summary.step_time_s.value / _MS)


def _ended_panel(effects: Sequence[Effect], both: TwoCommits) -> Panel:
    rows: list[DataRow] = [
        {
            "variant": str(each.case.variant),
            "setting": place(each.case),
            "before": each.before.outcome.replace("_", " "),
            "after": each.after.outcome.replace("_", " "),
            "reason": " ".join(str(each.after.reason or each.before.reason).split())[:_MOST_LETTERS],
        }
        for each in effects[:_MOST_LISTED]
    ]
    columns = {"variant": "variant", "setting": "setting", "before": both.before[:_SHORT], "after": both.after[:_SHORT]}
    columns["reason"] = "reason"
    text = "These cases have times at one of the commits only."
    return Panel("ended", "Ended differently", text, columns, {ALL: rows})


def _environments(machine_effects: MachineEffects, both: TwoCommits) -> Panel:
    differing: dict[str, Sequence[object]] = {"commit": (both.before, both.after), **machine_effects.differing}
    rows: list[DataRow] = [
        {"field": name.replace("_", " "), "before": shown_value(values[0]), "after": shown_value(values[1])}
        for name, values in differing.items()
    ]
    text = (
        "All else is equal: machine, versions and limits."
        if not machine_effects.differing
        else "These fields of the environment differ besides the commit. A change may be theirs."
    )
    columns = {"field": "field", "before": both.before[:_SHORT], "after": both.after[:_SHORT]}
    return Panel("environment", "Environments", text, columns, {ALL: rows})
