"""A table that goes on below itself if the terminal is too narrow for all of its columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

NONE = "-"
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

    Keys take half of the width at most; longer ones are folded.
    """

    title: str
    keys: Sequence[Column]
    columns: Sequence[Column]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title = self.title
        for columns in self._parts(options.max_width):
            yield self._table(title, columns, options.max_width)
            title = f"{self.title}, more columns"

    def _table(self, title: str, columns: Sequence[Column], width: int) -> Table:
        table = Table(title=Text(title, style="bold"), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column, key_width in zip(self.keys, self._key_widths(width), strict=True):
            table.add_column(Text(column.header), overflow="fold", width=key_width)
        for column in columns:
            table.add_column(Text(column.header), justify="right", overflow="fold")
        for row in zip(*(column.cells for column in (*self.keys, *columns)), strict=True):
            table.add_row(*map(Text, row))
        return table

    def _parts(self, width: int) -> Iterator[Sequence[Column]]:
        keys = sum(each + 2 for each in self._key_widths(width)) + 2  # two spaces between columns, one at each edge
        part: list[Column] = []
        for column in self.columns:
            if part and keys + sum(each.width + 2 for each in (*part, column)) > width:
                yield part
                part = []
            part.append(column)
        if part or not self.columns:
            yield part

    def _key_widths(self, width: int) -> list[int]:
        widths = [column.width for column in self.keys]
        spare = max(8, width // 2 - sum(widths[1:]))
        return [min(widths[0], spare), *widths[1:]]
