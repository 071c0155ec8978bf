"""A gate's judgement on a terminal of 80 columns or more, as a comment on GitHub, and as JSON.

SCHEMA history
    1  first.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from dpbench.errors import ExitCode
from dpbench.gate.judgement import Judgement, TimeJudgement
from dpbench.gate.words import acceptance, headline
from dpbench.judge.decision import Verdict
from dpbench.report.gate.changed_counters import counter_groups
from dpbench.report.gate.verdict_tables import (
    acceptances,
    circumstances,
    counters_table,
    drifted,
    moved,
    others,
    reasons,
    reliability,
    revision,
    slowest_first,
    times_table,
)
from dpbench.report.markdown import MAX_CHARACTERS, escaped, items, markdown_table
from dpbench.report.table import Column, Table
from dpbench.text.outside import one_line

_STYLES = {Verdict.PASS: "bold green", Verdict.SLOWER: "bold red", Verdict.UNDECIDED: "bold yellow"}
_LEGEND = (
    "times are each side's median; the ratio head / base compares blocks taken side by side, with its 95 % interval. "
    "tolerated: the growth that passes. smallest seen: the growth that is called slower nine times in ten with this "
    "noise. base / base: two processes of base in the same rounds; it differs from 1 by noise only."
)


def gate_text(judgement: Judgement) -> RenderableType:
    """The verdict, what moved in each tier, and how reliable the verdict is."""
    parts: list[RenderableType] = [
        _text(headline(judgement), _STYLES.get(judgement.verdict, "bold red")),
        _text(f"base {revision(judgement.base)}"),
        _text(f"head {revision(judgement.head)}"),
        Text(),
    ]
    findings, rows = list(_findings(judgement)), _measured(judgement)
    parts += [_obeyed_by_none(times_table(rows))] if rows else []
    shown = [part for line, details in findings for part in (_text(line), *map(_detail, details))]
    more = len(shown) - _MOST_SHOWN
    parts += (
        [*shown[: _MOST_SHOWN - 1], _text(f"... and {more + 1:,} more lines; --json has all")] if more > 0 else shown
    )
    parts += [Text()] if findings else []
    parts += [_text(_LEGEND, "dim"), Text()] if rows else []
    parts += map(_text, reliability(judgement))
    parts += [_text(f"note: {one_line(note)}") for note in judgement.notes]
    return Group(*parts, _text(circumstances(judgement)))


_MOST_SHOWN = 12
"""Lines on a terminal for what moved besides the times."""


def _detail(line: str) -> RenderableType:
    return Padding(_text(line, "dim"), (0, 0, 0, 4))


def _measured(judgement: Judgement) -> list[TimeJudgement]:
    """Benchmarks that moved and were measured."""
    return [time for time in moved(judgement) if time.decisive]


_Finding = tuple[str, tuple[str, ...]]
"""One line, and lines of details."""


def _findings(judgement: Judgement) -> Iterator[_Finding]:
    """What moved besides the rows of `times_table`."""
    for line in (*reasons(judgement), *others(judgement)):
        yield line, ()
    for group in counter_groups(judgement):
        yield group.line, group.details
    for drift in sorted(judgement.drifts, key=lambda drift: drift.before_s - drift.after_s):
        state = "drifted" if drift.accepted is None else "drifted, accepted"
        yield f"{one_line(drift.benchmark)} {state}: {drifted(drift)}", ()
    for accepted in acceptances(judgement):
        yield acceptance(accepted), ()


def _obeyed_by_none(table: Table) -> Table:
    """The table with cells in which GitHub's runner finds no command, also where a narrow one folds them."""

    def safe(column: Column, row: object) -> str:
        cell = _split(column.cell(row))
        return cell if len(cell) <= _UNFOLDED else cell.replace("::", "::\n")

    columns = [replace(column, value=partial(safe, column), form=str) for column in table.columns]
    return replace(table, title=_split(table.title), columns=columns)


def _text(line: str, style: str = "") -> Text:
    """A line with ``::`` is not folded: no word of it can begin a line, and node ids can be copied."""
    return Text(_split(line), style=style, overflow="ignore" if "::" in line else None)


_UNFOLDED = 20
"""Characters of a cell that no table folds before a command of GitHub's runner, whose shortest has nine."""
_COMMAND = re.compile(r"(?<!\S)::")


def _split(line: str) -> str:
    """A text in which GitHub's runner finds no command.

    The runner obeys ``::`` at the beginning of a line and ``##[`` anywhere. Source: actions/runner,
    src/Runner.Common/ActionCommand.cs, TryParseV2 and TryParse.
    """
    return _COMMAND.sub(": :", line).replace("##[", "## [")


MARKER = "<!-- dpbench gate -->"
"""The comment's first line, by which a workflow finds it. Escaped text never holds it."""

_ROWS = (100, 20, 5, 1)
_MOST_LINES = 15
"""Lines of the comment that are not folded, empty ones among them."""
_ROWS_ABOVE = 3
_COLUMNS_ABOVE = 6
"""Columns of the table of times in these lines; `_ROWS_ABOVE` are its rows."""


def gate_markdown(judgement: Judgement) -> str:
    """A comment with as many rows and lines as fit; `gate_json` has all of them."""
    texts = ["\n".join(_lines(judgement, most)) + "\n" for most in _ROWS]
    return next((text for text in texts if len(text) <= MAX_CHARACTERS), texts[-1])


def _lines(judgement: Judgement, most: int) -> Iterator[str]:
    findings, rows = list(_findings(judgement)), _measured(judgement)
    above = [MARKER, f"**{escaped(headline(judgement))}**", ""]
    above += [f"base {escaped(revision(judgement.base))}; head {escaped(revision(judgement.head))}", ""]
    table = times_table(rows[:_ROWS_ABOVE])
    above += markdown_table(replace(table, title="", columns=table.columns[:_COLUMNS_ABOVE])) if rows else []
    if len(rows) > _ROWS_ABOVE:
        findings.insert(0, (f"{len(rows) - _ROWS_ABOVE:,} more benchmarks that moved are below", ()))
    room = _MOST_LINES - len(above) - 1
    if len(findings) > room:
        room -= 1  # for the number of the others
    yield from (*above, *items([line for line, _ in findings], room))
    yield from ("<details><summary>All findings, and how they were measured</summary>", "")
    if judgement.times:
        times = slowest_first(judgement.times)
        yield from (*markdown_table(times_table(times, most)), _LEGEND, "")
    if judgement.counters:
        yield from markdown_table(counters_table(judgement, most))
    folded = [finding for place, finding in enumerate(findings) if finding[1] or place >= room]
    yield from items([line for line, _ in folded], most, dict(folded))
    notes = [*reliability(judgement), *judgement.notes, circumstances(judgement)]
    yield from items(notes, most)
    yield "</details>"


SCHEMA = 1
EXIT_CODES = {
    Verdict.PASS: ExitCode.OK,
    Verdict.FASTER: ExitCode.OK,
    Verdict.SLOWER: ExitCode.NEGATIVE,
    Verdict.UNDECIDED: ExitCode.UNDECIDED,
    Verdict.BROKEN: ExitCode.FAILED,
}


def gate_json(judgement: Judgement) -> dict[str, Any]:
    """``{"schema", "verdict", "exit_code", ...}`` and the fields of `Judgement`. All numbers are finite."""
    return {
        "schema": SCHEMA,
        "verdict": str(judgement.verdict),
        "exit_code": EXIT_CODES[judgement.verdict],
        **judgement.model_dump(mode="json"),
    }
