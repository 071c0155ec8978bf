"""A table that goes on below itself if the terminal is too narrow for all of its columns.

On a terminal with room to spare it has a column of bars. Output that goes to a file or a pipe has none, so that scripts
read the same text at every width.

Bars are a length as block characters, or as ``#`` where the terminal has only ASCII.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import floor

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_EIGHTHS = " ▏▎▍▌▋▊▉"
LEAST_WIDTH, MOST_WIDTH = 8, 24
"""Columns of a bar. A terminal without room for the least gets no bars."""


@dataclass(frozen=True)
class Bar:
    """A bar's length as a share of its column, 0 to 1, and rich's style. A share of None draws nothing."""

    share: float | None
    style: str = ""


def bar_text(share: float | None, width: int, *, ascii_only: bool) -> str:
    """Return a bar of at most `width` characters. A share above 0 has at least the thinnest mark."""
    if share is None or share <= 0:
        return ""
    if ascii_only:
        return "#" * max(1, round(min(share, 1) * width))
    eighths = max(1, round(min(share, 1) * width * 8))
    return "█" * floor(eighths / 8) + _EIGHTHS[eighths % 8].strip()


NONE = "-"
_BETWEEN, _EDGE = 2, 1
"""Spaces between two columns, and at each edge of a table."""
_NAME_WIDTH = 20


def folded(name: str) -> str:
    """Return a variant's name; a long one has a line for each parameter."""
    return name if len(name) <= _NAME_WIDTH else name.replace("[", "\n[").replace(",", ",\n")


@dataclass(frozen=True)
class Column:
    """A header, which may have several lines, and one cell for each row."""

    header: str
    cells: Sequence[str] = field(default_factory=tuple)

    @property
    def width(self) -> int:
        return max(cell_len(line) for text in (self.header, *self.cells) for line in text.split("\n"))


@dataclass(frozen=True)
class WideTable:
    """A table whose `keys` begin every row, also where the other `columns` go on below.

    Keys take half of the width at most; longer ones are folded. `bars` has one for each row, and `bars_header` says
    what they show.
    """

    title: str
    keys: Sequence[Column]
    columns: Sequence[Column]
    bars: Sequence[Bar] = ()
    bars_header: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title = self.title
        parts = list(self._parts(options.max_width))
        for columns in parts:
            table = self._table(columns, options.max_width)
            rows = [list(map(Text, row)) for row in self._rows(columns)]
            spare = options.max_width - self._width(columns, options.max_width) - _BETWEEN
            if self.bars and len(parts) == 1 and options.is_terminal and spare >= LEAST_WIDTH:
                self._add_bars(table, rows, min(spare, MOST_WIDTH), ascii_only=options.ascii_only)
            for row in rows:
                table.add_row(*row)
            yield Text(title, style="bold")
            yield table
            title = f"{self.title}, more columns"

    def _table(self, columns: Sequence[Column], width: int) -> Table:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column, key_width in zip(self.keys, self._key_widths(width), strict=True):
            table.add_column(Text(column.header), overflow="fold", width=key_width)
        for column in columns:
            table.add_column(Text(column.header), justify="right", overflow="fold")
        return table

    def _add_bars(self, table: Table, rows: Sequence[list[Text]], width: int, *, ascii_only: bool) -> None:
        table.add_column(Text(self.bars_header), width=width, no_wrap=True)
        for row, bar in zip(rows, self.bars, strict=True):
            row.append(Text(bar_text(bar.share, width, ascii_only=ascii_only), style=bar.style))

    def _rows(self, columns: Sequence[Column]) -> Iterator[tuple[str, ...]]:
        return zip(*(column.cells for column in (*self.keys, *columns)), strict=True)

    def _parts(self, width: int) -> Iterator[Sequence[Column]]:
        part: list[Column] = []
        for column in self.columns:
            if part and self._width([*part, column], width) > width:
                yield part
                part = []
            part.append(column)
        if part or not self.columns:
            yield part

    def _width(self, columns: Sequence[Column], width: int) -> int:
        """Return how wide a table with these columns is in a terminal of this width."""
        widths = [*self._key_widths(width), *(column.width for column in columns)]
        return sum(each + _BETWEEN for each in widths) + 2 * _EDGE

    def _key_widths(self, width: int) -> list[int]:
        widths = [column.width for column in self.keys]
        spare = max(8, width // 2 - sum(widths[1:]))
        return [min(widths[0], spare), *widths[1:]]
