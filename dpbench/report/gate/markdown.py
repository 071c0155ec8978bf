"""A gate's judgement in GitHub's markdown: a pull request's comment, or a step's summary."""

import re
from collections.abc import Iterable, Iterator

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.tables import (
    Grid,
    acceptances,
    counters_grid,
    drifts_grid,
    precision_grid,
    slowest_first,
    times_grid,
)
from dpbench.report.gate.what_changed import MOST_GROUPS, TITLE, what_changed
from dpbench.report.gate.wording import acceptance, circumstances, headline, reliability, revision
from dpbench.sweep.outside import one_line

MARKER = "<!-- dpbench gate -->"
"""The comment's first line, by which a workflow finds it. Escaped text never holds it."""

MAX_CHARACTERS = 65_536
"""The longest comment that GitHub accepts; for longer ones it returns status 422."""

_ROWS = (100, 20, 5, 1)
_MAX_TEXT = 300
_SPECIAL = re.compile(r"(?<!\d)\.|\.(?!\d)|(?<!\w)-|-(?!\w)|_|(?<=\d)\)|[^\w ,;/%()'.-]")
"""The characters to escape.

Letters, digits, points between digits, hyphens in words and harmless punctuation stay. A closing parenthesis after a
digit begins a numbered list.
"""


def gate_markdown(judgement: Judgement) -> str:
    """Return a comment with as many rows and lines as fit; `gate_json` has all of them."""
    texts = ["\n".join(_lines(judgement, most)) + "\n" for most in _ROWS]
    return next((text for text in texts if len(text) <= MAX_CHARACTERS), texts[-1])


def _lines(judgement: Judgement, most: int) -> Iterator[str]:
    yield from (MARKER, f"### dpbench gate: {judgement.verdict}", "", f"**{_escaped(headline(judgement))}**", "")
    yield from (f"- base {_escaped(revision(judgement.base))}", f"- head {_escaped(revision(judgement.head))}", "")
    yield from _table(counters_grid(judgement, min(most, 20)))
    yield from _what_changed(judgement, min(most, MOST_GROUPS))
    for grid in (times_grid(judgement, most), drifts_grid(judgement, most)):
        yield from _table(grid)
    yield from _list(list(_reasons(judgement)), most)
    yield from _list(list(reliability(judgement)), most)
    yield from ("<details><summary>How this was measured</summary>", "")
    yield from _table(precision_grid(judgement, most))
    yield from _list([circumstances(judgement), *map(acceptance, acceptances(judgement)), *judgement.notes], most)
    yield "</details>"


def _table(grid: Grid) -> Iterator[str]:
    if not grid.rows:
        return
    yield from (f"#### {_escaped(grid.title)}", "")
    yield _row(map(_escaped, grid.headers))
    yield _row("--:" if header in grid.numbers else ":--" for header in grid.headers)
    for name, *cells in grid.rows:
        yield _row([f"<code>{_escaped(name)}</code>", *map(_escaped, cells)])
    yield ""
    for line in grid.below:
        yield from (_escaped(line), "")


def _what_changed(judgement: Judgement, most: int) -> Iterator[str]:
    if not judgement.blames:
        return
    yield from (f"#### {TITLE}", "")
    for heading, lines in what_changed(judgement, most):
        yield f"- {_escaped(heading)}"
        yield from (f"  - {_escaped(line)}" for line in lines)
    yield ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _reasons(judgement: Judgement) -> Iterator[str]:
    for time in slowest_first(judgement.times):
        if time.verdict is not Verdict.PASS:
            yield f"{time.benchmark}: {time.verdict}: {time.why}"


def _list(lines: list[str], most: int) -> Iterator[str]:
    yield from (f"- {_escaped(line)}" for line in lines[:most])
    if len(lines) > most:
        yield f"- ... and {len(lines) - most:,} more"
    if lines:
        yield ""


def _escaped(text: str) -> str:
    """Return the text as one line in which GitHub finds no construct.

    It then has no markdown, HTML, link, emoji, mention of a person, or command to a runner. Every character that GFM
    may interpret becomes a numeric reference, which GFM never interprets (https://github.github.com/gfm/, 6.2). GitHub
    searches for mentions and issue references later, in the rendered text, and again in the plain text of replies by
    mail. Only a zero-width space after ``@`` and ``#`` prevents these (dependabot/dependabot-core, pull request 3157).
    """
    line = one_line(text)
    line = line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]} ..."
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};{'&#8203;' if found[0] in '@#' else ''}", line)
