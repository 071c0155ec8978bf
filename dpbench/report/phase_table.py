"""The table of a step's phases, variants side by side, and why phases are missing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rich.text import Text

from dpbench.analysis.over_rounds import OverRounds, notes_on_missing
from dpbench.analysis.phase_summary import PARTS_OF, PhaseSummary
from dpbench.report.table import Column, Table, folded
from dpbench.text.outside import one_line
from dpbench.text.quantities import number, time_unit

PHASES_LEGEND = (
    "phases: medians over rounds, of extra steps after the timed ones; indented parts belong to the phase above them. "
    "Skew: the slowest rank's time minus the fastest's. Lag: the slowest rank's median time minus the fastest's. "
    "Collectives: from start to end in this rank, in profiled steps; hidden while an operator of the rank runs."
)
_INDENTS = {
    name: "" if name == whole else "  "
    for whole, parts in {**PARTS_OF, "collectives": ("hidden",)}.items()
    for name in (whole, *parts)
}
_OF_RANKS = ("skew", "lag")


@dataclass(frozen=True)
class _Rank:
    """A column: the phases of a variant's only or chosen rank, and the marks behind figures."""

    name: str
    phases_s: Mapping[str, OverRounds]
    marks: Mapping[str, str] = field(default_factory=dict)

    @property
    def longest_s(self) -> float:
        return max((figure.value or 0.0 for row, figure in self.phases_s.items() if row not in _OF_RANKS), default=0.0)

    def cell(self, unit_s: float, row: str) -> str | None:
        figure = self.phases_s.get(row)
        if figure is None or figure.value is None:
            return None
        return f"{number(figure.value / unit_s)}{self.marks.get(row, '')}"


def phases_parts(summaries: Mapping[str, PhaseSummary]) -> Iterator[Table | Text]:
    """The table and its notes; nothing if no variant has a time. `summaries` is by variant.

    A variant with several ranks has a column for rank 0 and one for the slowest rank.
    """
    ranks = [rank for name, summary in summaries.items() for rank in _ranks(name, summary)]
    more = dict.fromkeys(row for rank in ranks for row in rank.phases_s if row not in (*_INDENTS, *_OF_RANKS))
    rows = [
        row
        for row in (*_INDENTS, *more, *_OF_RANKS)
        if any(rank.phases_s[row].value is not None for rank in ranks if row in rank.phases_s)
    ]
    if not rows:
        return
    unit_s, unit = time_unit(rank.longest_s for rank in ranks if rank.longest_s)
    columns = [Column("phase", lambda row: f"{_INDENTS.get(row, '')}{one_line(row)}")]
    columns += [Column(folded(rank.name), partial(rank.cell, unit_s)) for rank in ranks]
    yield Table(f"phases, {unit}", columns, rows)
    notes = [*_disagreements(ranks), *_missing(ranks, (*_INDENTS, *more, *_OF_RANKS))]
    yield from map(Text, [*notes, ""] if notes else [])


def _ranks(name: str, summary: PhaseSummary) -> Iterator[_Rank]:
    rank = summary.slowest_rank
    slowest_s = summary.slowest_phases_s if rank else None
    of_ranks = {"skew": summary.skew_s, "lag": None if rank is None else summary.rank_lag_s[rank]}
    phases_s = {**summary.phases_s, **{name: figure for name, figure in of_ranks.items() if figure is not None}}
    marks = {**dict.fromkeys(summary.disagreeing, " ≠"), "lag": f" (rank {rank})"}
    yield _Rank(name if slowest_s is None else f"{name} rank 0", phases_s, marks)
    if slowest_s is not None:
        longer = summary.longer_than_the_step(slowest_s)
        yield _Rank(f"{name} rank {rank}", slowest_s, dict.fromkeys(longer, " ≠"))


def _disagreements(ranks: Sequence[_Rank]) -> Iterator[str]:
    for rank in ranks:
        if longer := " and ".join(row for row, mark in rank.marks.items() if mark == " ≠"):
            yield f"{rank.name}: its phases disagree with the step (≠): {longer} took longer than the whole step"


def _missing(ranks: Sequence[_Rank], rows: Sequence[str]) -> Iterator[str]:
    return notes_on_missing(
        (one_line(row), (rank.name, ""), rank.phases_s[row]) for row in rows for rank in ranks if row in rank.phases_s
    )
