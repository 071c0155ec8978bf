"""Texts and tables in GitHub's markdown, in which a text from outside is only text."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dpbench.report.table import Table
from dpbench.text.outside import one_line

MAX_CHARACTERS = 65_536
"""The longest issue or comment that GitHub accepts."""

_MAX_TEXT = 300
_NO_WIDTH = "\u200b"
_SPECIAL = re.compile(
    r"(?P<reference>[<&$])"
    r"|(?P<mark>[\\`*~|]|(?<![^\W_])_|_(?![^\W_])|\[(?=[ xX]\])|\](?=[(\[:]))"
    r"|(?P<split>@|\#(?=[\d\[])|www(?=\.)|GH-(?=\d)|:(?=//|[+-]1:|100:|1234:|(?!\d+:)[\w-]+:))",
    re.IGNORECASE,
)
"""What GitHub may interpret anywhere in a line. `_LEADING` is what begins a block."""
_REFERENCES = {"<": "&lt;", "&": "&amp;", "$": "&#36;"}
_LEADING = re.compile(r"^(\d+(?=[.)](?!\S))|(?=[-+](?!\S)|-[-\s]*$|[=>]|::|#{1,6}(?!\S)))")


_INDENT = "&emsp;"


def markdown_table(table: Table) -> Iterator[str]:
    """The first cell of a row is code if it can be, and keeps its indent."""
    marks = [":--" if column.is_text or place < table.keys else "--:" for place, column in enumerate(table.columns)]
    yield from (f"#### {escaped(table.title)}", "") if table.title else ()
    yield _row(_inert(column.header) for column in table.columns)
    yield _row(marks)
    for row in table.rows:
        name, *cells = (column.cell(row) for column in table.columns)
        indent = _INDENT * ((len(name) - len(name.lstrip(" "))) // 2)
        name = one_line(name.replace("\n", ""))
        first = indent + (f"`{name}`" if name and _fits_code(name) else _inert(name))
        yield _row([first, *map(_inert, cells)])
    yield ""
    for line in table.below:
        yield from (escaped(line), "")


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def items(lines: Sequence[str], most: int, details: Mapping[str, Sequence[str]] | None = None) -> Iterator[str]:
    """A list of the first `most` lines, with the `details` of a line below it."""
    for line in lines[:most]:
        yield f"- {escaped(line)}"
        yield from (f"  - {escaped(detail)}" for detail in (details or {}).get(line, ()))
    if len(lines) > most:
        yield f"- ... and {len(lines) - most:,} more"
    if lines:
        yield ""


def escaped(text: str) -> str:
    """As one line in which GitHub finds no construct, also at the beginning of a line.

    It has no markdown, HTML, link, emoji, mention of a person, or command to a runner. Marks get a backslash. ``<`` and
    ``&`` are references, because backslashes do nothing inside of HTML, and ``$`` because they do nothing for
    mathematics. GitHub searches for mentions, issues and emoji again in the plain text of replies by mail. Only a
    zero-width space prevents these (dependabot/dependabot-core, pull request 3157).
    """
    return _LEADING.sub(r"\1\\", _inert(text))


def _inert(text: str) -> str:
    line = one_line(text)
    return _SPECIAL.sub(_replacement, line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]} ...")


def _fits_code(name: str) -> bool:
    """Whether it is inert as code, where a backslash would be seen."""
    return len(name) <= _MAX_TEXT and all(match[0] in "*_" for match in _SPECIAL.finditer(name))


def _replacement(match: re.Match[str]) -> str:
    if match["split"]:
        return f"{match[0]}{_NO_WIDTH}"
    return _REFERENCES.get(match[0], f"\\{match[0]}")
