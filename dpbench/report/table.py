"""One table: columns over rows, here for a terminal. It goes on below itself if the terminal is too narrow.

A terminal with room to spare gets a column of bars. A file or a pipe gets none, so that scripts read the same text at
every width.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from math import floor
from typing import Any

from pydantic_core import to_jsonable_python
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from dpbench.text.outside import one_line
from dpbench.text.quantities import number

_EIGHTHS = " ▏▎▍▌▋▊▉"
LEAST_WIDTH = 8
MOST_WIDTH = 24
"""Characters of a bar. A terminal without room for the least gets no bars."""
NONE = "-"
_BETWEEN = 2
"""Spaces between two columns."""
_EDGE = 1
"""Spaces at each edge of a table."""
_NAME_WIDTH = 20


def shown(value: object) -> str:
    """Numbers with a point have three significant digits."""
    return number(value) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Column:
    """A header, maybe of several lines, the value of a row, and the text of a value that is not None.

    A column without a header is in no table. `key` is the value's name in JSON, `export` that in CSV and Parquet. Texts
    show the value in `unit`. A column of texts is aligned to the left.
    """

    header: str
    value: Callable[[Any], Any]
    form: Callable[[Any], str] = shown
    key: str = ""
    is_text: bool = False
    unit: float | None = None
    export: str = ""

    def shown_value(self, row: object) -> Any:
        value = self.value(row)
        return value if self.unit is None or value is None else value / self.unit

    def cell(self, row: object) -> str:
        value = self.shown_value(row)
        return NONE if value is None else self.form(value)


def of(path: str) -> Callable[[Any], Any]:
    """The function that reads ``path`` of a row, such as ``summary.step_time_s.low``. What is of a None is None."""

    def read(row: Any) -> Any:
        for name in path.split("."):
            row = None if row is None else getattr(row, name)
        return row

    return read


def titled(columns: Iterable[Column]) -> list[Column]:
    return [column for column in columns if column.header]


def json_of(columns: Sequence[Column], row: object) -> dict[str, Any]:
    """An empty list or object is None."""
    values = {column.key: to_jsonable_python(column.value(row)) for column in columns if column.key}
    return {key: None if value in ([], {}) else value for key, value in values.items()}


def exported(columns: Sequence[Column], row: object) -> dict[str, str | int | float | None]:
    """A flat row for CSV and Parquet. What is no number is a text."""
    cells = {column.export: column.value(row) for column in columns if column.export}
    return {name: value if isinstance(value, int | float | None) else str(value) for name, value in cells.items()}


@dataclass(frozen=True)
class Bar:
    """A length as a share of its column, 0 to 1, and rich's style. A share of None draws nothing."""

    share: float | None
    style: str = ""


def bar_text(share: float | None, width: int, *, ascii_only: bool) -> str:
    """At most `width` characters. A share above 0 has at least the thinnest mark."""
    if share is None or share <= 0:
        return ""
    if ascii_only:
        return "#" * max(1, round(min(share, 1) * width))
    eighths = max(1, round(min(share, 1) * width * 8))
    return "█" * floor(eighths / 8) + _EIGHTHS[eighths % 8].strip()


def folded(name: str) -> str:
    """A long name of a variant gets a line for each parameter."""
    return name if len(name) <= _NAME_WIDTH else name.replace("[", "\n[").replace(",", ",\n")


def plain_lines(*parts: RenderableType, width: int) -> list[str]:
    """What a terminal of this width shows, without colours."""
    console = Console(width=width, file=StringIO(), color_system=None, force_jupyter=False)
    with console.capture() as captured:
        console.print(Group(*parts), crop=False)
    return [line.rstrip() for line in captured.get().splitlines()]


def list_of(title: str, rows: Sequence[Sequence[str]]) -> RichTable:
    """Rows without a header, such as names and what they mean, and an empty line below. Names stay whole."""
    table = RichTable(title=Text(title), title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 0))
    for place in range(max(map(len, rows), default=1)):
        table.add_column(no_wrap=place == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    table.add_row()
    return table


@dataclass(frozen=True)
class Table:
    """The first columns, the `keys`, begin every row, also where the others go on below.

    Keys take half of the width at most; longer ones are folded. The first one is folded to `least_key` characters or
    more if all columns fit then. A compact table has no rule below the header. `below` are lines below the table.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Any]
    keys: int = 1
    least_key: int | None = None
    bar: Callable[[Any], Bar] | None = None
    bars_header: str = ""
    is_compact: bool = False
    below: Sequence[str] = ()

    def without_empty_columns(self) -> "Table":
        """Keys stay."""
        kept = [column for column in self.columns[self.keys :] if any(column.cell(row) != NONE for row in self.rows)]
        return replace(self, columns=[*self.columns[: self.keys], *kept])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title = self.title
        parts = list(self._parts(options.max_width))
        for columns in parts:
            table = self._table(columns, options.max_width)
            rows = [[Text(column.cell(row)) for column in self._with_keys(columns)] for row in self.rows]
            spare = options.max_width - self._width(columns, options.max_width) - _BETWEEN
            if self.bar and len(parts) == 1 and options.is_terminal and spare >= LEAST_WIDTH:
                width = min(spare, MOST_WIDTH)
                table.add_column(Text(self.bars_header), width=width, no_wrap=True)
                for cells, bar in zip(rows, map(self.bar, self.rows), strict=True):
                    text = bar_text(bar.share, width, ascii_only=options.ascii_only)
                    cells.append(Text(text, style=bar.style))
            for cells in rows:
                table.add_row(*cells)
            yield from [Text(title, style="bold")] if title else []
            yield table
            title = ", ".join(filter(None, (self.title, "more columns")))
        yield from map(Text, self.below)

    def _table(self, columns: Sequence[Column], width: int) -> RichTable:
        box, edges = (None, (0, 2, 0, 0)) if self.is_compact else (SIMPLE_HEAD, (0, 1, 0, 0))
        table = RichTable(box=box, padding=edges)
        for column, key_width in zip(self.columns[: self.keys], self._key_widths(width), strict=True):
            table.add_column(Text(column.header), overflow="fold", width=key_width)
        for column in columns:
            table.add_column(Text(column.header), justify="left" if column.is_text else "right", overflow="fold")
        return table

    def _with_keys(self, columns: Sequence[Column]) -> Sequence[Column]:
        return (*self.columns[: self.keys], *columns)

    def _parts(self, width: int) -> Iterator[Sequence[Column]]:
        part: list[Column] = []
        other_columns = self.columns[self.keys :]
        for column in other_columns:
            if part and self._width([*part, column], width) > width:
                yield part
                part = []
            part.append(column)
        if part or not other_columns:
            yield part

    def _width(self, columns: Sequence[Column], width: int) -> int:
        """How wide a table with these columns is in a terminal of this width."""
        widths = [*self._key_widths(width), *map(self._column_width, columns)]
        return sum(widths) + _BETWEEN * len(widths) + 2 * _EDGE

    def _column_width(self, column: Column) -> int:
        texts = (column.header, *map(column.cell, self.rows))
        return max(cell_len(line) for text in texts for line in text.split("\n"))

    def _key_widths(self, width: int) -> list[int]:
        first, *other_keys = map(self._column_width, self.columns[: self.keys])
        first = min(first, max(8, width // 2 - sum(other_keys)))
        if self.least_key is not None:
            rest = [first, *other_keys, *map(self._column_width, self.columns[self.keys :])]
            over = sum(rest) + _BETWEEN * len(rest) + 2 * _EDGE - width
            first -= over if 0 < over <= first - self.least_key else 0
        return [first, *other_keys]
