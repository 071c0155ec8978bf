"""The table of phases: where a step's time goes, and how far apart its ranks are."""

from collections.abc import Iterator, Mapping

from rich.text import Text

from dpbench.report.missing import notes_on_missing
from dpbench.report.units import number, time_unit
from dpbench.report.wide_table import NONE, Column, WideTable, folded
from dpbench.results.phase_parts import PARTS_OF
from dpbench.results.phase_summary import PhaseSummary
from dpbench.results.readings import OverRounds
from dpbench.sweep.outside import one_line

PHASES_LEGEND = (
    "phases: medians over rounds, of extra steps after the timed ones; indented parts belong to the phase above them. "
    "Skew: the slowest rank's time minus the fastest's. Lag: the slowest rank's median time minus the fastest's. "
    "Collectives: from start to end in this rank, in profiled steps; hidden while an operator of the rank runs."
)
_ROWS = {
    name: f"{'' if name == whole else '  '}{name}"
    for whole, parts in {**PARTS_OF, "collectives": ("hidden",)}.items()
    for name in (whole, *parts)
}


def phases_parts(found: Mapping[str, PhaseSummary]) -> Iterator[WideTable | Text]:
    """Yield the table and its notes, or nothing if no variant has a time. `found` is by variant.

    A variant with several ranks has a column for rank 0 and one for the slowest rank.
    """
    found = dict(_ranks_apart(found))
    unknown = dict.fromkeys(name for each in found.values() for name in each.phases_s if name not in _ROWS)
    rows = {label: _row(name, found) for name, label in {**_ROWS, **{name: one_line(name) for name in unknown}}.items()}
    rows["skew"] = {name: each.skew_s for name, each in found.items()}
    rows["lag"] = {name: _largest_lag(each) for name, each in found.items()}
    notes = [*_disagreements(found), *_notes(rows)]
    rows = {label: row for label, row in rows.items() if any(_value(each) is not None for each in row.values())}
    if not rows:
        return
    unit_s, unit = _unit(found)
    columns = [
        Column(folded(name), [_cell(row[name], unit_s, found[name], label) for label, row in rows.items()])
        for name in found
    ]
    yield WideTable(f"phases, {unit}", [Column("phase", list(rows))], columns)
    yield from map(Text, [*notes, ""] if notes else [])


def _ranks_apart(found: Mapping[str, PhaseSummary]) -> Iterator[tuple[str, PhaseSummary]]:
    for name, each in found.items():
        slowest_s = each.slowest_phases_s if each.slowest_rank else None
        yield name if slowest_s is None else f"{name} rank 0", each
        if slowest_s is not None:
            slowest = PhaseSummary(slowest_s, skew_s=None, rank_lag_s=(), longest_step_s=each.longest_step_s)
            yield f"{name} rank {each.slowest_rank}", slowest


def _disagreements(found: Mapping[str, PhaseSummary]) -> Iterator[str]:
    for name, each in found.items():
        if each.disagreeing:
            longer = " and ".join(each.disagreeing)
            yield f"{name}: its phases disagree with the step (≠): {longer} took longer than the whole step"


def _notes(rows: Mapping[str, Mapping[str, OverRounds | None]]) -> Iterator[str]:
    return notes_on_missing(
        (label.strip(), (variant, ""), figure)
        for label, row in rows.items()
        for variant, figure in row.items()
        if figure is not None
    )


def _row(name: str, found: Mapping[str, PhaseSummary]) -> dict[str, OverRounds | None]:
    return {variant: each.phases_s.get(name) for variant, each in found.items()}


def _largest_lag(found: PhaseSummary) -> OverRounds | None:
    return None if found.slowest_rank is None else found.rank_lag_s[found.slowest_rank]


def _unit(found: Mapping[str, PhaseSummary]) -> tuple[float, str]:
    """Return the unit for the longest phase of the fastest variant."""
    longest = [max((_value(each) or 0.0 for each in one.phases_s.values()), default=0.0) for one in found.values()]
    return time_unit([value for value in longest if value])


def _cell(figure: OverRounds | None, unit_s: float, found: PhaseSummary, label: str) -> str:
    value = _value(figure)
    if value is None:
        return NONE
    mark = f" (rank {found.slowest_rank})" if label == "lag" else " ≠" if label in found.disagreeing else ""
    return f"{number(value / unit_s)}{mark}"


def _value(figure: OverRounds | None) -> float | None:
    return None if figure is None else figure.value
