"""Texts and tables in GitHub's markdown, in which a text from outside is only text."""

import re
from collections.abc import Iterable, Iterator, Sequence

from dpbench.report.table import Table
from dpbench.text.outside import one_line

MAX_CHARACTERS = 65_536
"""The longest issue or comment that GitHub accepts; for longer ones it returns status 422."""

_MAX_TEXT = 300
_SPECIAL = re.compile(r"(?<!\d)\.|\.(?!\d)|(?<!\w)-|-(?!\w)|_|(?<=\d)\)|[^\w ,;/%()'.-]")
"""The characters to escape.

Letters, digits, points between digits, hyphens in words and harmless punctuation stay. A closing parenthesis after a
digit begins a numbered list.
"""


_INDENT = "&emsp;"


def markdown_table(table: Table) -> Iterator[str]:
    """Yield the lines of a table with its title.

    The first cell of a row has a monospaced font, and keeps its indent.
    """
    drawn = [] if table.drawing is None else [table.drawing]
    marks = [":--" if column.is_text or place < table.keys else "--:" for place, column in enumerate(table.columns)]
    yield from (f"#### {escaped(table.title)}", "")
    yield _row(escaped(column.header) for column in (*table.columns, *drawn))
    yield _row([*marks, *(":-:" for _ in drawn)])
    for row in table.rows:
        name, *cells = (column.cell(row) for column in table.columns)
        indent = _INDENT * ((len(name) - len(name.lstrip(" "))) // 2)
        first = f"{indent}<code>{escaped(name.replace(chr(10), ''))}</code>" if name.strip() else ""
        drawings = [text and f"<code>{text}</code>" for text in (column.value(row) for column in drawn)]
        yield _row([first, *map(escaped, cells), *drawings])
    yield ""
    for line in table.below:
        yield from (escaped(line), "")


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def items(lines: Sequence[str], most: int) -> Iterator[str]:
    """Yield a list of the first `most` lines, escaped, and how many more there are."""
    yield from (f"- {escaped(line)}" for line in lines[:most])
    if len(lines) > most:
        yield f"- ... and {len(lines) - most:,} more"
    if lines:
        yield ""


def escaped(text: str) -> str:
    """Return the text as one line in which GitHub finds no construct.

    It then has no markdown, HTML, link, emoji, mention of a person, or command to a runner. Every character that GFM
    may interpret becomes a numeric reference, which GFM never interprets (https://github.github.com/gfm/, 6.2). GitHub
    searches for mentions and issue references later, in the rendered text, and again in the plain text of replies by
    mail. Only a zero-width space after ``@`` and ``#`` prevents these (dependabot/dependabot-core, pull request 3157).
    """
    line = one_line(text)
    line = line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]} ..."
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};{'&#8203;' if found[0] in '@#' else ''}", line)
