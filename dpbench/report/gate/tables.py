"""A gate's judgement as tables and lines of text, for every form that has tables.

A ratio is drawn with characters on a line around 1. They mean nothing in markdown, so they need no escape:

    ┄┄┄┄┄┄┄┄┄┄│┄━━●━━┄┄┄┄    surely above 1
    ┄┄┄┄┄┄┄━━━┿●━━┄┄┄┄┄┄┄    not decided
    ◄━━━━━━━━━│┄┄┄┄┄┄┄┄┄┄    goes on to the left
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log

from dpbench.gate.judgement import (
    Accepted,
    Blame,
    Cause,
    CounterChange,
    Drift,
    Judgement,
    TimeJudgement,
    TimeRatio,
    Verdict,
)
from dpbench.report.gate.wording import NONE, counted, growth, growth_between, interval, share
from dpbench.report.units import number, time_unit
from dpbench.sweep.outside import one_line

MOST = 20
"""The most counters in a table: one changed operator can change those of every case."""


@dataclass(frozen=True)
class Grid:
    """A table of text.

    `numbers` are the headers of the right-aligned columns. A header may have two lines. `below` are lines of text
    below the table. `drawings` has a drawing of characters for each row, under the header `drawn`; forms without a
    monospaced font for it leave it out.
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[str] = field(default_factory=frozenset)
    below: tuple[str, ...] = ()
    drawn: str = ""
    drawings: tuple[str, ...] = ()


def counters_grid(judgement: Judgement, most: int = MOST) -> Grid:
    found = worst_first(judgement.counters)
    rows = tuple(_counter_row(each) for each in found[:most])
    title = f"Counters that changed ({counted(judgement)})"
    headers = ("benchmark", "counter", "base", "head", "is")
    return Grid(title, headers, rows, frozenset({"base", "head"}), _more(len(found), most))


def worst_first(changes: Iterable[CounterChange]) -> list[CounterChange]:
    """Sort worse counters first: the worst of each benchmark, then the second worst of each."""
    by_benchmark: dict[str, list[CounterChange]] = defaultdict(list)
    for change in sorted(changes, key=_badness, reverse=True):
        by_benchmark[change.benchmark].append(change)
    ranked = [(*_badness(change), rank, change) for found in by_benchmark.values() for rank, change in enumerate(found)]
    return [change for *_, change in sorted(ranked, key=lambda found: (-found[0], found[2], -found[1]))]


def _badness(change: CounterChange) -> tuple[int, float]:
    kind = {True: 2, None: 1, False: 0}[change.is_worse] if change.accepted is None else -1
    kind = min(kind, 1) if change.traded_for else kind
    if change.base is None or change.head is None:
        return kind, inf
    return kind, abs(change.head - change.base) / max(abs(change.base), 1)


def _counter_row(change: CounterChange) -> tuple[str, ...]:
    return (
        one_line(change.benchmark),
        one_line(change.counter),
        count(change.base),
        count(change.head),
        _accepted(direction(change), change.accepted),
    )


def direction(change: CounterChange) -> str:
    if change.traded_for is not None:
        return "worse, traded"
    return {True: "worse", False: "better", None: "differs"}[change.is_worse]


def count(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"


def times_grid(judgement: Judgement, most: int | None = None) -> Grid:
    """The step times and verdicts, slower benchmarks first."""
    found = slowest_first(judgement.times)
    unit_s, unit = _unit(x for time in found for x in (time.base_step_s, time.head_step_s))
    rows = tuple(
        (
            one_line(time.benchmark),
            _in(time.base_step_s, unit_s),
            _in(time.head_step_s, unit_s),
            growth(time.ratio.value) if time.ratio else NONE,
            interval(time.ratio) if time.ratio else NONE,
            _accepted(time.verdict, time.accepted),
        )
        for time in found[:most]
    )
    numbers = (f"base, {unit}", f"head, {unit}", "change", "head / base")
    headers = ("benchmark", *numbers, "verdict")
    shown = [time.ratio for time in found[:most]]
    span = span_of(each for each in shown if each)
    drawings = tuple(interval_line(each, span) if each else "" for each in shown)
    below = _more(len(found), most)
    return Grid("Step times", headers, rows, frozenset(numbers), below, ends_of(span), drawings)


def precision_grid(judgement: Judgement, most: int | None = None) -> Grid:
    """The noise, the detectable growth, the rounds and analyses, in the order of `times_grid`."""
    found = slowest_first(judgement.times)
    rows = tuple(
        (
            one_line(time.benchmark),
            share(time.threshold),
            NONE if time.detectable is None else share(time.detectable),
            interval(time.twin) if time.twin else NONE,
            f"{time.rounds:,}, {time.looks:,}",
            one_line(time.cores),
        )
        for time in found[:most]
    )
    numbers = ("tolerated", "smallest\nseen", "base / base", "rounds,\nanalyses")
    headers = ("benchmark", *numbers, "cores")
    return Grid("Precision of these times", headers, rows, frozenset(numbers), _more(len(found), most))


def drifts_grid(judgement: Judgement, most: int | None = None) -> Grid:
    found = sorted(judgement.drifts, key=lambda drift: drift.before_s - drift.after_s)
    unit_s, unit = _unit(x for drift in found for x in (drift.before_s, drift.after_s))
    rows = tuple(
        (
            one_line(drift.benchmark),
            _in(drift.before_s, unit_s),
            _in(drift.after_s, unit_s),
            growth_between(drift.before_s, drift.after_s),
            one_line(f"{drift.since_commit[:10]}, {drift.since}"),
            f"{drift.points:,}",
            _accepted("slower", drift.accepted),
        )
        for drift in found[:most]
    )
    numbers = (f"before, {unit}", f"after, {unit}", "change")
    headers = ("benchmark", *numbers, "since", "points", "verdict")
    return Grid("Drifts in the history", headers, rows, frozenset({*numbers, "points"}), _more(len(found), most))


def slowest_first(times: Sequence[TimeJudgement]) -> list[TimeJudgement]:
    order = (Verdict.SLOWER, Verdict.BROKEN, Verdict.UNDECIDED, Verdict.PASS)

    def place(time: TimeJudgement) -> tuple[int, bool, float]:
        return order.index(time.verdict), time.accepted is not None, -time.ratio.value if time.ratio else 0.0

    return sorted(times, key=place)


def acceptances(judgement: Judgement) -> Iterator[Accepted]:
    """Yield each accepted regression that covers a finding, once."""
    found: list[CounterChange | TimeJudgement | Drift] = [*judgement.counters, *judgement.times, *judgement.drifts]
    yield from dict.fromkeys(each.accepted for each in found if each.accepted is not None)


def _more(found: int, most: int | None) -> tuple[str, ...]:
    return (f"... and {found - most:,} more",) if most is not None and found > most else ()


def _accepted(word: str, accepted: Accepted | None) -> str:
    return word if accepted is None else f"{word}, accepted"


def _unit(times_s: Iterable[float | None]) -> tuple[float, str]:
    return time_unit([time_s for time_s in times_s if time_s])


def _in(time_s: float | None, unit_s: float) -> str:
    return NONE if time_s is None else number(time_s / unit_s)


_HALF = 10
_LEAST_SPAN, _MOST_SPAN = log(1.02), log(2.0)
_LINE, _ONE, _INTERVAL, _ONE_INSIDE, _VALUE, _LEFT, _RIGHT = "┄│━┿●◄►"


def span_of(ratios: Iterable[TimeRatio]) -> float:
    """Return the logarithm at a line's end that shows all of the ratios, between those of 1.02 and of 2."""
    ends = [abs(log(end)) for each in ratios for end in (each.low, each.high) if end > 0]
    return min(max([_LEAST_SPAN, *ends]), _MOST_SPAN)


def ends_of(span: float) -> str:
    """Return the ratios at both ends of a line, such as ``0.95 … 1 … 1.05``."""
    return f"{exp(-span):.2f} … 1 … {exp(span):.2f}"


def interval_line(ratio: TimeRatio, span: float) -> str:
    """Return the line of a ratio: 21 characters, with 1 in the middle. An end that lies outside is an arrow."""
    low, value, high = (_place(end, span) for end in (ratio.low, ratio.value, ratio.high))
    cells = [_LINE] * (2 * _HALF + 1)
    cells[_HALF] = _ONE
    for place in range(max(low, 0), min(high, 2 * _HALF) + 1):
        cells[place] = _ONE_INSIDE if place == _HALF else _INTERVAL
    if _is_beside_one(ratio):
        cells[_HALF] = _ONE
    cells[min(max(value, 0), 2 * _HALF)] = _VALUE
    if low < 0:
        cells[0] = _LEFT
    if high > 2 * _HALF:
        cells[-1] = _RIGHT
    return "".join(cells)


def _is_beside_one(ratio: TimeRatio) -> bool:
    """Whether the interval does not contain 1, though its nearest end may round to the middle."""
    return ratio.low > 1 or ratio.high < 1


def _place(ratio: float, span: float) -> int:
    """Return the cell of a ratio: below 0 or above 20 if it lies outside."""
    where = _HALF * (1 + log(ratio) / span) if ratio > 0 else -1.0
    return round(min(max(where, -1), 2 * _HALF + 1))


TITLE = "What changed"
MOST_GROUPS = 8
"""Groups of blames in a form: one call more changes several counters of every case."""
_LONGEST_TEXT = 60


def what_changed(judgement: Judgement, most: int = MOST_GROUPS) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return a heading and its lines for each group of worse counters with the same causes.

    The last heading says how many groups are left out.
    """
    groups: dict[tuple[str, ...], list[Blame]] = {}
    for blame in judgement.blames:
        groups.setdefault((blame.counter, *cause_lines(blame)), []).append(blame)
    shown = [(_heading(blames), lines) for (_, *lines), blames in list(groups.items())[:most]]
    more = [(f"... and {len(groups) - most:,} more counters", ())] if len(groups) > most else []
    return (*((heading, tuple(lines)) for heading, lines in shown), *more)


def cause_lines(blame: Blame) -> Iterator[str]:
    """Yield a line for each cause, and one for those that are left out."""
    yield from map(_line, blame.causes)
    if blame.more:
        yield f"... and {blame.more:,} more"


def _heading(blames: Sequence[Blame]) -> str:
    others = f" and {len(blames) - 1:,} more" if len(blames) > 1 else ""
    return one_line(f"{blames[0].counter} of {blames[0].benchmark}{others}")


def _line(cause: Cause) -> str:
    lines = ", ".join(map(str, cause.lines))
    text = cause.text if len(cause.text) <= _LONGEST_TEXT else f"{cause.text[:_LONGEST_TEXT]} ..."
    numbers = f"{cause.head - cause.base:+,} ({cause.base:,} -> {cause.head:,})"
    return one_line(f"{numbers} {cause.what}, in {cause.function} at {cause.file}:{lines}: {text}")
