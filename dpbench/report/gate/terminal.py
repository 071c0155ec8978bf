"""A gate's judgement for a terminal of 80 columns or more."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

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

_STYLES = {Verdict.PASS: "bold green", Verdict.SLOWER: "bold red", Verdict.UNDECIDED: "bold yellow"}
_LEGEND = (
    "head / base: of step times, with its 95 % interval; above 1 is slower. tolerated: the growth that is let pass. "
    "smallest seen: the growth that this noise lets be called slower nine times in ten. base / base: base timed "
    "against itself in the same rounds, 1 but for noise."
)


def gate_text(judgement: Judgement) -> RenderableType:
    """Verdict, what changed in each tier, and what the verdict is worth."""
    grids = (counters_grid(judgement), times_grid(judgement), sureness_grid(judgement), drifts_grid(judgement))
    parts: list[RenderableType] = [
        _text(headline(judgement), _STYLES.get(judgement.verdict, "bold red")),
        _text(f"base {revision(judgement.base)}"),
        _text(f"head {revision(judgement.head)}"),
        Text(),
    ]
    for grid in grids:
        parts += table(grid) if grid.rows else ()
    parts += map(_text, _reasons(judgement))
    parts += [Text(), Text(_LEGEND, style="dim"), Text()] if judgement.times else []
    parts += map(_text, evidence(judgement))
    parts += [_text(f"note: {one_line(note)}") for note in judgement.notes]
    return Group(*parts, _text(circumstances(judgement)))


def table(grid: Grid) -> Iterator[RenderableType]:
    """A grid, and the lines below it."""
    title = _text(grid.title, "bold")
    drawn = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for header in grid.headers:
        is_number = header in grid.numbers
        drawn.add_column(header, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in grid.rows:
        drawn.add_row(*map(_text, row))
    yield drawn
    yield from map(_text, grid.below)


def _reasons(judgement: Judgement) -> Iterator[str]:
    for time in slowest_first(judgement.times):
        if time.verdict is not Verdict.PASS:
            yield f"{one_line(time.benchmark)}: {time.verdict}: {one_line(time.why)}"
    yield from map(acceptance, acceptances(judgement))


def _text(line: str, style: str = "") -> Text:
    """What a runner of GitHub's would obey is taken apart, ``::`` at a line's beginning and ``##[`` anywhere.

    Wrapping may put any word at a line's beginning.
    Source: actions/runner, src/Runner.Common/ActionCommand.cs, TryParseV2 and TryParse.
    """
    return Text(line.replace("::", ": :").replace("##[", "## ["), style=style)
