"""A gate's judgement in GitHub's markdown: a pull request's comment, or a step's summary."""

from collections.abc import Iterator

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.tables import (
    MOST_GROUPS,
    TITLE,
    Grid,
    acceptances,
    counters_grid,
    drifts_grid,
    precision_grid,
    slowest_first,
    times_grid,
    what_changed,
)
from dpbench.report.gate.wording import acceptance, circumstances, headline, reliability, revision
from dpbench.report.markdown import MAX_CHARACTERS, code, escaped, items, row

MARKER = "<!-- dpbench gate -->"
"""The comment's first line, by which a workflow finds it. Escaped text never holds it."""

_ROWS = (100, 20, 5, 1)


def gate_markdown(judgement: Judgement) -> str:
    """Return a comment with as many rows and lines as fit; `gate_json` has all of them."""
    texts = ["\n".join(_lines(judgement, most)) + "\n" for most in _ROWS]
    return next((text for text in texts if len(text) <= MAX_CHARACTERS), texts[-1])


def _lines(judgement: Judgement, most: int) -> Iterator[str]:
    yield from (MARKER, f"### dpbench gate: {judgement.verdict}", "", f"**{escaped(headline(judgement))}**", "")
    yield from (f"- base {escaped(revision(judgement.base))}", f"- head {escaped(revision(judgement.head))}", "")
    yield from _table(counters_grid(judgement, min(most, 20)))
    yield from _what_changed(judgement, min(most, MOST_GROUPS))
    for grid in (times_grid(judgement, most), drifts_grid(judgement, most)):
        yield from _table(grid)
    yield from items(list(_reasons(judgement)), most)
    yield from items(list(reliability(judgement)), most)
    yield from ("<details><summary>How this was measured</summary>", "")
    yield from _table(precision_grid(judgement, most))
    yield from items([circumstances(judgement), *map(acceptance, acceptances(judgement)), *judgement.notes], most)
    yield "</details>"


def _table(grid: Grid) -> Iterator[str]:
    if not grid.rows:
        return
    yield from (f"#### {escaped(grid.title)}", "")
    drawn = [escaped(grid.drawn)] if grid.drawings else []
    yield row([*map(escaped, grid.headers), *drawn])
    yield row([*("--:" if header in grid.numbers else ":--" for header in grid.headers), *([":-:"] * len(drawn))])
    for place, (name, *cells) in enumerate(grid.rows):
        drawing = [f"<code>{grid.drawings[place]}</code>" if grid.drawings[place] else ""] if drawn else []
        yield row([code(name), *map(escaped, cells), *drawing])
    yield ""
    for line in grid.below:
        yield from (escaped(line), "")


def _what_changed(judgement: Judgement, most: int) -> Iterator[str]:
    if not judgement.blames:
        return
    yield from (f"#### {TITLE}", "")
    for heading, lines in what_changed(judgement, most):
        yield f"- {escaped(heading)}"
        yield from (f"  - {escaped(line)}" for line in lines)
    yield ""


def _reasons(judgement: Judgement) -> Iterator[str]:
    for time in slowest_first(judgement.times):
        if time.verdict is not Verdict.PASS:
            yield f"{time.benchmark}: {time.verdict}: {time.why}"
