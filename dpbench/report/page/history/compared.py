"""The page that compares two commits: what is surely slower or faster, and the rest folded."""

from collections.abc import Iterator, Sequence

from dpbench.report.headline import place
from dpbench.report.page.facts import shown_value
from dpbench.report.page.history.commits import Effect, MachineEffects, TwoCommits, two_commits
from dpbench.report.page.inputs import PageInputs
from dpbench.report.page.machines import by_machine
from dpbench.report.page.parts import ALL, DataRow, MachinePart, Page, Panel, Section, Shown
from dpbench.report.page.raw_table import MOST_ROWS, raw_table
from dpbench.report.page.theme import BAD, GOOD, MUTED, TWO_LINES_PX, chart, coloured, number_axis, rows_of, tooltip
from dpbench.report.units import estimate, number
from dpbench.results.summary import Summary

_SHORT = 10
_MS = 1e-3
_BETWEEN = " · "
"""The axis writes what follows it into a second line."""
_MOST_DRAWN = 40
_MOST_LISTED = 2000
_MOST_LETTERS = 300
_SLOWER, _FASTER, _SAME = "slower", "faster", "not decided"


def compared_page(found: PageInputs, before: str, after: str) -> Page:
    """Return the page of two commits, given by their first digits. Raise CommitOptionError."""
    both = two_commits(found.records, before, after)
    records = [
        each for each in found.records if each.environment and each.environment.commit in (both.before, both.after)
    ]
    table = raw_table(by_machine(records))
    notes = [*found.left_out, *_notes(both)]
    if found.gates or found.elastic or found.projections:
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
    unmatched = sum(each.unmatched for each in both.machines)
    if unmatched:
        yield f"{unmatched:,} cases were measured at one of the commits only and are left out."


def _part(number: int, found: MachineEffects, both: TwoCommits) -> MachinePart:
    sure = [each for each in found.effects if each.is_sure]
    ended = [each for each in found.effects if each.ratio is None and each.before.outcome != each.after.outcome]
    others = [each for each in found.effects if not each.is_sure and each not in ended]
    panels = [
        *([_sure_panel(sure, both)] if sure else []),
        *([_ended_panel(ended, both)] if ended else []),
        *([_folded_panel(others, both)] if others else []),
    ]
    sections = [
        *([Section(f"m{number}-changes", "What changed, and how sure is that?", panels)] if panels else []),
        Section(f"m{number}-environment", "What else differs?", [_environments(found, both)]),
    ]
    devices = ", ".join(sorted(set(found.after.gpus))) or found.after.cpu_model
    return MachinePart(f"{found.after.hostname}: {devices}", _answer(found, both), None, [], sections)


def _answer(found: MachineEffects, both: TwoCommits) -> str:
    slower, faster = ([each for each in found.effects if getattr(each, name)] for name in ("is_slower", "is_faster"))
    timed = sum(each.ratio is not None for each in found.effects)
    if not timed:
        return "No case has times at both commits."
    if not slower and not faster:
        return f"No sure change in {timed:,} {_cases(timed)} from {both.before[:_SHORT]} to {both.after[:_SHORT]}."
    return (
        f"From {both.before[:_SHORT]} to {both.after[:_SHORT]}: of {timed:,} {_cases(timed)}, {len(slower):,} slower"
        f"{_most(slower)}, {len(faster):,} faster{_most(faster)}."
    )


def _most(found: Sequence[Effect]) -> str:
    """Return the largest effect, such as `` (by up to +12.0 %)``."""
    if not found or found[0].ratio is None:
        return ""
    return f" (by up to {_growth(found[0])})"


def _cases(count: int) -> str:
    return "case" if count == 1 else "cases"


def _growth(found: Effect) -> str:
    assert found.ratio is not None
    return f"{100 * (found.ratio.value - 1):+.1f} %"


def _columns(both: TwoCommits) -> tuple[Shown, ...]:
    return (
        Shown("variant", "variant"),
        Shown("setting", "setting"),
        Shown("change", "change"),
        Shown("shown", "time after over before [95 % interval]"),
        Shown("before", f"{both.before[:_SHORT]}, ms"),
        Shown("after", f"{both.after[:_SHORT]}, ms"),
        Shown("rounds", "rounds"),
    )


def _sure_panel(found: Sequence[Effect], both: TwoCommits) -> Panel:
    rows = [_row(each) for each in found[:_MOST_DRAWN]]
    colour = coloured("verdict", [(_SLOWER, BAD), (_FASTER, GOOD)])
    channel = rows_of("row")
    y = {
        **channel,
        "axis": {**channel["axis"], "labelExpr": f"split(datum.label, '{_BETWEEN}', 2)", "labelBaseline": "bottom"},
    }
    ends = {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}}
    tip = tooltip(*(("variant", "variant"), ("setting", "setting"), ("change", "change"), ("shown", "after / before")))
    spec = chart(
        {"mark": {"type": "rule", "strokeDash": [4, 3], "color": MUTED}, "encoding": {"x": {"datum": 1.0}}},
        {"mark": {"type": "rule", "strokeWidth": 3}, "encoding": {"y": y, **ends, "color": colour}},
        {
            "mark": {"type": "point", "size": 110},
            "encoding": {
                "y": y,
                "color": colour,
                "tooltip": tip,
                "x": number_axis("ratio", "time after over before", log=True),
            },
        },
        height={"step": TWO_LINES_PX},
    )
    cut = f" The first {_MOST_DRAWN} of {len(found):,} are shown." if len(found) > _MOST_DRAWN else ""
    text = (
        "Sorted by effect. Each line is a 95 % interval that does not contain 1. One case in twenty looks changed by "
        "chance, and machines drift between runs: dpbench gate measures two commits side by side to confirm a change."
        f"{cut}"
    )
    return Panel("changed", "Surely changed", text, _columns(both), {ALL: rows}, spec)


def _folded_panel(found: Sequence[Effect], both: TwoCommits) -> Panel:
    rows = [_row(each) for each in found[:_MOST_LISTED]]
    text = "Their intervals contain 1, or a commit has one round only or no times."
    title = f"{len(found):,} {_cases(len(found))} without a sure change"
    return Panel("unchanged", title, text, _columns(both), {ALL: rows}, is_folded=True)


def _row(found: Effect) -> DataRow:
    case, ratio = found.case, found.ratio
    return {
        "row": f"{case.variant}{_BETWEEN}{place(case)}",
        "variant": str(case.variant),
        "setting": place(case),
        "ratio": None if ratio is None else ratio.value,
        "low": None if ratio is None else ratio.low,
        "high": None if ratio is None else ratio.high,
        "change": "-" if ratio is None else _growth(found),
        "shown": "-" if ratio is None else estimate(ratio),
        "verdict": _SLOWER if found.is_slower else _FASTER if found.is_faster else _SAME,
        "before": _time(found.before),
        "after": _time(found.after),
        "rounds": f"{found.before.rounds_ok}, {found.after.rounds_ok}",
    }


def _time(found: Summary) -> str:
    return found.outcome.replace("_", " ") if found.step_time_s is None else number(found.step_time_s.value / _MS)


def _ended_panel(found: Sequence[Effect], both: TwoCommits) -> Panel:
    rows: list[DataRow] = [
        {
            "variant": str(each.case.variant),
            "setting": place(each.case),
            "before": each.before.outcome.replace("_", " "),
            "after": each.after.outcome.replace("_", " "),
            "reason": " ".join(str(each.after.reason or each.before.reason).split())[:_MOST_LETTERS],
        }
        for each in found[:_MOST_LISTED]
    ]
    columns = (
        Shown("variant", "variant"),
        Shown("setting", "setting"),
        Shown("before", both.before[:_SHORT]),
        Shown("after", both.after[:_SHORT]),
        Shown("reason", "reason"),
    )
    text = "These cases have times at one of the commits only."
    return Panel("ended", "Ended differently", text, columns, {ALL: rows})


def _environments(found: MachineEffects, both: TwoCommits) -> Panel:
    differing: dict[str, Sequence[object]] = {"commit": (both.before, both.after), **found.differing}
    rows: list[DataRow] = [
        {"field": name.replace("_", " "), "before": shown_value(values[0]), "after": shown_value(values[1])}
        for name, values in differing.items()
    ]
    text = (
        "All else is equal: machine, versions and limits."
        if not found.differing
        else "These fields of the environment differ besides the commit. A change may be theirs."
    )
    columns = (Shown("field", "field"), Shown("before", both.before[:_SHORT]), Shown("after", both.after[:_SHORT]))
    return Panel("environment", "Environments", text, columns, {ALL: rows})
