"""A gate's judgement as a comment on a pull request, or a step's summary, in GitHub's markdown."""

import re
from collections.abc import Iterable, Iterator

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.tables import (
    Grid,
    acceptances,
    counters_grid,
    drifts_grid,
    slowest_first,
    sureness_grid,
    times_grid,
)
from dpbench.report.gate.wording import acceptance, circumstances, evidence, headline, one_line, revision

MARKER = "<!-- dpbench gate -->"
"""The comment's first line, by which a workflow finds it again. Nothing that is quoted can hold it."""

MAX_CHARACTERS = 65_536
"""Longer comments GitHub refuses with status 422."""

_ROWS = (100, 20, 5, 1)
_MAX_TEXT = 300
_SPECIAL = re.compile(r"(?<!\d)\.|\.(?!\d)|(?<!\w)-|-(?!\w)|_|[^\w ,;/%()'.-]")
"""All but letters, digits, points between digits, hyphens in words and what has no meaning in GFM."""


def gate_markdown(judgement: Judgement) -> str:
    """With as many rows and lines as a comment can hold; `gate_json` has all."""
    texts = ["\n".join(_lines(judgement, most)) + "\n" for most in _ROWS]
    return next((text for text in texts if len(text) <= MAX_CHARACTERS), texts[-1])


def _lines(judgement: Judgement, most: int) -> Iterator[str]:
    yield from (MARKER, f"### dpbench gate: {judgement.verdict}", "", f"**{_escaped(headline(judgement))}**", "")
    yield from (f"- base {_escaped(revision(judgement.base))}", f"- head {_escaped(revision(judgement.head))}", "")
    shown = (counters_grid(judgement, min(most, 20)), times_grid(judgement, most), drifts_grid(judgement, most))
    for grid in shown:
        yield from _table(grid)
    yield from _list(list(_reasons(judgement)), most)
    yield from _list(list(evidence(judgement)), most)
    yield from ("<details><summary>How this was measured</summary>", "")
    yield from _table(sureness_grid(judgement, most))
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
    """So that nothing in it is markdown, HTML, a link, an emoji, a command to a runner, or calls a person.

    What could be part of a construct of GFM is a numeric reference, which cannot be one
    (https://github.github.com/gfm/, 6.2). Mentions and issue references are looked for after that, in what is shown,
    and once more in the plain text of replies by mail: only a space of no width after ``@`` and ``#`` ends them
    (dependabot/dependabot-core, pull request 3157).
    """
    line = one_line(text)
    line = line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]} ..."
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};{'&#8203;' if found[0] in '@#' else ''}", line)
