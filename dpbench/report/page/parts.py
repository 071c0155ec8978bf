"""What a page consists of. Plain data: JSON for the script, texts for the document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpbench.analysis.answer import Headline
from dpbench.report.table import Column, shown, titled

Cell = str | float | int | bool | None
DataRow = Mapping[str, Cell]
ALL = ""
"""The only key of a panel that offers no choice."""
_DIGITS = 5
Columns = Mapping[str, str]
"""The columns of a table: the header of each field of its rows."""


def headers_of(columns: Sequence[Column]) -> dict[str, str]:
    """A table's columns as those of a page."""
    return {_field(column): column.header.replace("\n", " ") for column in titled(columns)}


def cells_of(columns: Sequence[Column], row: object) -> dict[str, Cell]:
    """A table's row as that of a page. Values that are no numbers, or have a form of their own, are texts."""
    cells: dict[str, Cell] = {}
    for column in titled(columns):
        value = column.shown_value(row)
        if value is not None and not (isinstance(value, int | float) and column.form is shown):
            value = column.form(value)
        cells[_field(column)] = float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
    return cells


def _field(column: Column) -> str:
    return column.key or column.header.replace("\n", " ")


@dataclass(frozen=True)
class Panel:
    """A table, and above it a chart unless `spec` is None.

    `rows` has the rows by key. If there are several keys, the reader chooses one, and `labels` has their names. Panels
    of one `choice` on one machine change together; `chosen` is the choice's label. `first` is the key that is shown at
    first. `text` says what to look at, also to readers who do not see the chart. `spec` is Vega-Lite without its data.
    A folded panel has one key and no chart.
    """

    id: str
    title: str
    text: str
    columns: Columns
    rows: Mapping[str, Sequence[DataRow]]
    spec: Mapping[str, Any] | None = None
    choice: str = ""
    first: str = ALL
    labels: Mapping[str, str] = field(default_factory=dict)
    is_folded: bool = False
    chosen: str = "Setting"


@dataclass(frozen=True)
class Section:
    """Without panels it is left out."""

    id: str
    title: str
    panels: Sequence[Panel]
    answers: Sequence[str] = ()


@dataclass(frozen=True)
class MachinePart:
    """One machine with one set of versions. `main` is of the setting that the panels show first, `others` are of the
    next.
    """

    name: str
    summary: str
    main: Headline | None
    others: Sequence[Headline]
    sections: Sequence[Section]


@dataclass(frozen=True)
class RawTable:
    """A row for each case. `left_out` is how many cases are not in it."""

    columns: Columns
    rows: Sequence[Sequence[Cell]]
    left_out: int = 0


@dataclass(frozen=True)
class Page:
    """`notes` say what was left out or summarised, and why."""

    title: str
    notes: Sequence[str]
    machines: Sequence[MachinePart]
    sections: Sequence[Section]
    table: RawTable
