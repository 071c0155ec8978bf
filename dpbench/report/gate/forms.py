"""A gate's judgement on a terminal, as a comment on GitHub, and as JSON.

The terminal has 80 columns or more. The comment is one on a pull request, or the summary of a step. The JSON is
dpbench's own object with the exit code, or Bencher Metric Format.

``bencher run --adapter json --file FILE`` reads the latter: https://bencher.dev/docs/reference/bencher-metric-format.
It is an object by benchmark, and in it by measure. A measure has ``value``, and the ends of its interval as
``lower_value`` and ``upper_value``. All values are head's, because Bencher compares them with the earlier ones.

SCHEMA history
    1  first.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.gate.judgement import Judgement, TimeJudgement, Verdict
from dpbench.report.gate.tables import (
    MOST_GROUPS,
    TITLE,
    acceptance,
    acceptances,
    circumstances,
    counters_table,
    drifts_table,
    headline,
    precision_table,
    reliability,
    revision,
    slowest_first,
    times_table,
    what_changed,
)
from dpbench.report.markdown import MAX_CHARACTERS, escaped, items, markdown_table
from dpbench.report.table import Column, Table
from dpbench.text.outside import one_line

_STYLES = {Verdict.PASS: "bold green", Verdict.SLOWER: "bold red", Verdict.UNDECIDED: "bold yellow"}
_LEGEND = (
    "head / base: ratio of step times, with its 95 % interval; above 1 is slower. tolerated: the growth that passes. "
    "smallest seen: the growth that is called slower nine times in ten with this noise. base / base: two processes of "
    "base in the same rounds; it differs from 1 by noise only. analyses: how often these rounds were judged."
)


def gate_text(judgement: Judgement) -> RenderableType:
    """Return the verdict, the changes of each tier, and how reliable the verdict is."""
    tables = (times_table(judgement), precision_table(judgement), drifts_table(judgement))
    counters = counters_table(judgement)
    parts: list[RenderableType] = [
        _text(headline(judgement), _STYLES.get(judgement.verdict, "bold red")),
        _text(f"base {revision(judgement.base)}"),
        _text(f"head {revision(judgement.head)}"),
        Text(),
    ]
    parts += [_obeyed_by_none(counters), *_what_changed(judgement)] if counters.rows else []
    parts += [_obeyed_by_none(table) for table in tables if table.rows]
    parts += map(_text, [*_reasons(judgement), *map(acceptance, acceptances(judgement))])
    parts += [Text(), Text(_LEGEND, style="dim"), Text()] if judgement.times else []
    parts += map(_text, reliability(judgement))
    parts += [_text(f"note: {one_line(note)}") for note in judgement.notes]
    return Group(*parts, _text(circumstances(judgement)))


def _obeyed_by_none(table: Table) -> Table:
    """Return the table with cells in which GitHub's runner finds no command."""

    def safe(column: Column, row: object) -> str:
        return _split(column.cell(row))

    columns: Sequence[Column] = [replace(each, value=partial(safe, each), form=str) for each in table.columns]
    return replace(table, title=_split(table.title), columns=columns)


def _what_changed(judgement: Judgement) -> Iterator[RenderableType]:
    if judgement.blames:
        yield _text(TITLE, "bold")
        for heading, lines in what_changed(judgement):
            yield _text(heading)
            yield from (_text(f"    {line}") for line in lines)
        yield Text()


def _reasons(judgement: Judgement) -> Iterator[str]:
    for time in slowest_first(judgement.times):
        if time.verdict not in (Verdict.PASS, Verdict.FASTER):
            yield f"{one_line(time.benchmark)}: {time.verdict}: {one_line(time.why)}"


def _text(line: str, style: str = "") -> Text:
    return Text(_split(line), style=style)


def _split(line: str) -> str:
    """Return a text in which GitHub's runner finds no command.

    The runner obeys ``::`` at the beginning of a line and ``##[`` anywhere, so both are split by a space. All ``::``
    are, because wrapping may put any word at the beginning of a line.
    Source: actions/runner, src/Runner.Common/ActionCommand.cs, TryParseV2 and TryParse.
    """
    return line.replace("::", ": :").replace("##[", "## [")


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
    yield from _table(counters_table(judgement, min(most, 20)))
    yield from _changed_items(judgement, min(most, MOST_GROUPS))
    yield from _table(times_table(judgement, most))
    yield from _table(drifts_table(judgement, most))
    yield from items(list(_reasons(judgement)), most)
    yield from items(list(reliability(judgement)), most)
    yield from ("<details><summary>How this was measured</summary>", "")
    yield from _table(precision_table(judgement, most))
    yield from items([circumstances(judgement), *map(acceptance, acceptances(judgement)), *judgement.notes], most)
    yield "</details>"


def _table(table: Table) -> Iterator[str]:
    return markdown_table(table) if table.rows else iter(())


def _changed_items(judgement: Judgement, most: int) -> Iterator[str]:
    if not judgement.blames:
        return
    yield from (f"#### {TITLE}", "")
    for heading, lines in what_changed(judgement, most):
        yield f"- {escaped(heading)}"
        yield from (f"  - {escaped(line)}" for line in lines)
    yield ""


SCHEMA = 1
EXIT_CODES = {Verdict.PASS: 0, Verdict.FASTER: 0, Verdict.SLOWER: 1, Verdict.UNDECIDED: 2, Verdict.BROKEN: 3}


def gate_json(judgement: Judgement) -> dict[str, Any]:
    """Return ``{"schema", "verdict", "exit_code", ...}`` and the fields of `Judgement`.

    All numbers are finite.
    """
    return {
        "schema": SCHEMA,
        "verdict": str(judgement.verdict),
        "exit_code": EXIT_CODES[judgement.verdict],
        **judgement.model_dump(mode="json"),
    }


LATENCY = "latency"
"""Bencher's own measure, in nanoseconds."""
HEAD_OVER_BASE = "head-over-base"

_MOST_OF_BENCHMARK, _MOST_OF_MEASURE = 1024, 64
"""Characters that Bencher allows in a name."""

Metric = dict[str, float]


def gate_bencher(judgement: Judgement) -> str:
    """Return the step time, the ratio and the counters of each benchmark.

    Of the counters there are those that differ between base and head. A judgement without measurements is ``{}``.
    """
    return f"{json.dumps(_measures(judgement), indent=2, allow_nan=False)}\n"


def _measures(judgement: Judgement) -> dict[str, dict[str, Metric]]:
    found: dict[str, dict[str, Metric]] = defaultdict(dict)
    for time in judgement.times:
        if measures := _times(time):
            found[_name(time.benchmark, _MOST_OF_BENCHMARK)].update(measures)
    for change in judgement.counters:
        if change.head is not None:
            measure = _name(change.counter, _MOST_OF_MEASURE)
            found[_name(change.benchmark, _MOST_OF_BENCHMARK)][measure] = {"value": float(change.head)}
    return dict(found)


def _times(time: TimeJudgement) -> dict[str, Metric]:
    """Return head's step time and the ratio to base. The interval of both is the ratio's."""
    if time.ratio is None or time.head_step_s is None:
        return {}
    ratio, step_ns = time.ratio, 1e9 * time.head_step_s
    return {
        LATENCY: _metric(step_ns, step_ns * ratio.low / ratio.value, step_ns * ratio.high / ratio.value),
        HEAD_OVER_BASE: _metric(ratio.value, ratio.low, ratio.high),
    }


def _metric(value: float, low: float, high: float) -> Metric:
    return {"value": value, "lower_value": low, "upper_value": high}


def _name(text: str, most: int) -> str:
    return one_line(text)[:most] or "unnamed"
