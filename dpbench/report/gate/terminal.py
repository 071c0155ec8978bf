"""A gate's judgement for a terminal of 80 columns or more."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.tables import (
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
from dpbench.sweep.outside import one_line

_STYLES = {Verdict.PASS: "bold green", Verdict.SLOWER: "bold red", Verdict.UNDECIDED: "bold yellow"}
_LEGEND = (
    "head / base: ratio of step times, with its 95 % interval; above 1 is slower. tolerated: the growth that passes. "
    "smallest seen: the growth that is called slower nine times in ten with this noise. base / base: two processes of "
    "base in the same rounds; it differs from 1 by noise only. analyses: how often these rounds were judged."
)


def gate_text(judgement: Judgement) -> RenderableType:
    """Return the verdict, the changes of each tier, and how reliable the verdict is."""
    grids = (times_grid(judgement), precision_grid(judgement), drifts_grid(judgement))
    counters = counters_grid(judgement)
    parts: list[RenderableType] = [
        _text(headline(judgement), _STYLES.get(judgement.verdict, "bold red")),
        _text(f"base {revision(judgement.base)}"),
        _text(f"head {revision(judgement.head)}"),
        Text(),
    ]
    parts += [*table(counters), *_what_changed(judgement)] if counters.rows else []
    for grid in grids:
        parts += table(grid) if grid.rows else ()
    parts += map(_text, _reasons(judgement))
    parts += [Text(), Text(_LEGEND, style="dim"), Text()] if judgement.times else []
    parts += map(_text, reliability(judgement))
    parts += [_text(f"note: {one_line(note)}") for note in judgement.notes]
    return Group(*parts, _text(circumstances(judgement)))


def table(grid: Grid) -> Iterator[RenderableType]:
    """Yield the drawn table and the lines below it."""
    title = _text(grid.title, "bold")
    drawn = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for header in grid.headers:
        is_number = header in grid.numbers
        drawn.add_column(header, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in grid.rows:
        drawn.add_row(*map(_text, row))
    yield drawn
    yield from map(_text, grid.below)


def _what_changed(judgement: Judgement) -> Iterator[RenderableType]:
    if judgement.blames:
        yield _text(TITLE, "bold")
        for heading, lines in what_changed(judgement):
            yield _text(heading)
            yield from (_text(f"    {line}") for line in lines)
        yield Text()


def _reasons(judgement: Judgement) -> Iterator[str]:
    for time in slowest_first(judgement.times):
        if time.verdict is not Verdict.PASS:
            yield f"{one_line(time.benchmark)}: {time.verdict}: {one_line(time.why)}"
    yield from map(acceptance, acceptances(judgement))


def _text(line: str, style: str = "") -> Text:
    """Text in which GitHub's runner finds no command.

    The runner obeys ``::`` at the beginning of a line and ``##[`` anywhere, so both are split by a space. All ``::``
    are, because wrapping may put any word at the beginning of a line.
    Source: actions/runner, src/Runner.Common/ActionCommand.cs, TryParseV2 and TryParse.
    """
    return Text(line.replace("::", ": :").replace("##[", "## ["), style=style)
