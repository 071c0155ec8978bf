"""A gate's judgement as tables, lines and words, which all of its forms share.

A ratio is drawn with characters on a line around 1. They mean nothing in markdown, so they need no escape:

    ┄┄┄┄┄┄┄┄┄┄│┄━━●━━┄┄┄┄    surely above 1
    ┄┄┄┄┄┄┄━━━┿●━━┄┄┄┄┄┄┄    not decided
    ◄━━━━━━━━━│┄┄┄┄┄┄┄┄┄┄    goes on to the left
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import exp, inf, log
from typing import Any

from dpbench.gate.judgement import (
    Accepted,
    Blame,
    Cause,
    CounterChange,
    Drift,
    FalseAlarms,
    Judgement,
    Revision,
    TimeJudgement,
    TimeRatio,
    Verdict,
)
from dpbench.report.table import NONE, Column, Table
from dpbench.report.units import number, time_unit
from dpbench.text.outside import one_line

MOST = 20
"""The most counters in a table: one changed operator can change those of every case."""


def counters_table(judgement: Judgement, most: int = MOST) -> Table:
    found = worst_first(judgement.counters)
    columns = [
        *(_benchmark(), _text("counter", lambda each: one_line(each.counter))),
        *(Column("base", lambda each: each.base, "{:,}".format), Column("head", lambda each: each.head, "{:,}".format)),
        _text("is", lambda each: _accepted(direction(each), each.accepted)),
    ]
    return _table(f"Counters that changed ({counted(judgement)})", columns, found, most)


def _text(header: str, value: Callable[[Any], str]) -> Column:
    return Column(header, value, is_text=True)


def _benchmark() -> Column:
    return _text("benchmark", lambda each: one_line(each.benchmark))


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


def direction(change: CounterChange) -> str:
    if change.traded_for is not None:
        return "worse, traded"
    return {True: "worse", False: "better", None: "differs"}[change.is_worse]


def count(value: float | None) -> str:
    return NONE if value is None else f"{value:,}"


def times_table(judgement: Judgement, most: int | None = None) -> Table:
    """The step times and verdicts, slower benchmarks first."""
    found = slowest_first(judgement.times)
    unit, in_unit = _unit(x for time in found for x in (time.base_step_s, time.head_step_s))
    span = span_of(time.ratio for time in found[:most] if time.ratio)
    columns = [
        _benchmark(),
        Column(f"base, {unit}", lambda time: time.base_step_s, in_unit),
        Column(f"head, {unit}", lambda time: time.head_step_s, in_unit),
        Column("change", lambda time: time.ratio and growth(time.ratio.value)),
        Column("head / base", lambda time: time.ratio, interval),
        _text("verdict", lambda time: _accepted(time.verdict, time.accepted)),
    ]
    drawing = Column(ends_of(span), lambda time: interval_line(time.ratio, span) if time.ratio else "")
    return replace(_table("Step times", columns, found, most), drawing=drawing)


def precision_table(judgement: Judgement, most: int | None = None) -> Table:
    """The noise, the detectable growth, the rounds and analyses, in the order of `times_table`."""
    found = slowest_first(judgement.times)
    columns = [
        _benchmark(),
        Column("tolerated", lambda time: time.threshold, share),
        Column("smallest\nseen", lambda time: time.detectable, share),
        Column("base / base", lambda time: time.twin, interval),
        Column("rounds,\nanalyses", lambda time: f"{time.rounds:,}, {time.looks:,}"),
        _text("cores", lambda time: one_line(time.cores)),
    ]
    return _table("Precision of these times", columns, found, most)


def drifts_table(judgement: Judgement, most: int | None = None) -> Table:
    found = sorted(judgement.drifts, key=lambda drift: drift.before_s - drift.after_s)
    unit, in_unit = _unit(x for drift in found for x in (drift.before_s, drift.after_s))
    columns = [
        _benchmark(),
        Column(f"before, {unit}", lambda drift: drift.before_s, in_unit),
        Column(f"after, {unit}", lambda drift: drift.after_s, in_unit),
        Column("change", lambda drift: growth_between(drift.before_s, drift.after_s)),
        _text("since", lambda drift: f"{one_line(drift.since_commit[:10])},\n{one_line(drift.since)}"),
        Column("points", lambda drift: drift.points, "{:,}".format),
        _text("verdict", lambda drift: _accepted("slower", drift.accepted)),
    ]
    return _table("Drifts in the history", columns, found, most)


def slowest_first(times: Sequence[TimeJudgement]) -> list[TimeJudgement]:
    order = (Verdict.SLOWER, Verdict.BROKEN, Verdict.UNDECIDED, Verdict.PASS, Verdict.FASTER)

    def place(time: TimeJudgement) -> tuple[int, bool, float]:
        return order.index(time.verdict), time.accepted is not None, -time.ratio.value if time.ratio else 0.0

    return sorted(times, key=place)


def acceptances(judgement: Judgement) -> Iterator[Accepted]:
    """Yield each accepted regression that covers a finding, once."""
    found: list[CounterChange | TimeJudgement | Drift] = [*judgement.counters, *judgement.times, *judgement.drifts]
    yield from dict.fromkeys(each.accepted for each in found if each.accepted is not None)


def _table(title: str, columns: Sequence[Column], found: Sequence[Any], most: int | None) -> Table:
    more = (f"... and {len(found) - most:,} more",) if most is not None and len(found) > most else ()
    return Table(title, columns, found[:most], least_key=12, below=more)


def _accepted(word: str, accepted: Accepted | None) -> str:
    return word if accepted is None else f"{word}, accepted"


def _unit(times_s: Iterable[float | None]) -> tuple[str, Callable[[float], str]]:
    """Return the name of the times' unit, and the function that writes a time in it."""
    unit_s, unit = time_unit([time_s for time_s in times_s if time_s])
    return unit, lambda time_s: number(time_s / unit_s)


_HALF = 10
_LEAST_SPAN, _MOST_SPAN = log(1.02), log(2.0)
_LINE, _ONE, _INTERVAL, _ONE_INSIDE, _VALUE, _LEFT, _RIGHT = "┄│━┿●◄►"


def span_of(ratios: Iterable[TimeRatio]) -> float:
    """Return the logarithm at a line's end that shows all of the ratios, between those of 1.02 and of 2."""
    ends = [abs(log(end)) for ratio in ratios for end in (ratio.low, ratio.high) if end > 0]
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


def share(value: float) -> str:
    """``0.0015`` becomes ``0.15 %``."""
    digits = number(100 * value)
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits} %"


def growth(times: float) -> str:
    """``1.052`` becomes ``+5.2 %``."""
    return f"{round(100 * (times - 1), 1) + 0.0:+,.1f} %"  # + 0.0 turns -0.0 into 0.0


def growth_between(before: float, after: float) -> str:
    return growth(after / before) if before else NONE


def interval(ratio: TimeRatio) -> str:
    """Return the ratio and its interval as text: ``1.052 [1.041, 1.063]``."""
    return f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def headline(judgement: Judgement) -> str:
    return f"{judgement.verdict.capitalize()}: {one_line(judgement.why)}"


def counted(judgement: Judgement) -> str:
    if judgement.uncounted_cases:
        return f"{judgement.counted_cases:,} of {judgement.counted_cases + judgement.uncounted_cases:,} cases counted"
    return f"{judgement.counted_cases:,} {'case' if judgement.counted_cases == 1 else 'cases'} counted"


def revision(found: Revision) -> str:
    """Return the short hash, the revision as typed unless that is the hash, and the subject.

    A merge base is called so, with the commit that was typed.

    Without a commit, the text begins with the revision as typed.
    """
    if found.commit is None:
        return one_line(f"{found.asked or found.short} {found.subject}")
    if found.tip is not None:
        tip = "" if found.tip.startswith(found.asked) else f", {found.tip[:10]}"
        return one_line(f"{found.short} (merge base with {found.asked}{tip}) {found.subject}")
    asked = "" if found.commit.startswith(found.asked) else f"({found.asked})"
    return one_line(f"{found.short} {asked} {found.subject}")


def acceptance(accepted: Accepted) -> str:
    return one_line(
        f"accepted until {accepted.expires} ({accepted.benchmark} at {accepted.revision}): {accepted.reason}"
    )


def measured(time: TimeJudgement) -> str:
    """Return the ratio, the noise and the number of rounds of a benchmark in one line."""
    parts = [f"{growth(time.ratio.value)}, head / base {interval(time.ratio)}"] if time.ratio else ["nothing measured"]
    parts.append(f"tolerated {share(time.threshold)}")
    parts += [f"smallest seen {share(time.detectable)}"] if time.detectable is not None else []
    parts += [f"base / base {interval(time.twin)}"] if time.twin else []
    return "; ".join([*parts, f"{time.rounds:,} rounds"])


def reliability(judgement: Judgement) -> tuple[str, str]:
    """Return two lines: the rate of false alarms, and the smallest growth that is detected."""
    return _false_alarms(judgement.false_alarms, judgement.alarm_rate), _smallest(judgement)


def circumstances(judgement: Judgement) -> str:
    """Return one line with the gate's duration, start time, machine and versions."""
    minutes, seconds = divmod(round(judgement.duration_s), 60)
    text = f"took {minutes} min {seconds} s from {judgement.started_at}"
    if judgement.environment is not None:
        found = judgement.environment
        text += f" on {found.hostname}: {found.cpu_model}, {found.cores} cores, {', '.join([*found.gpus, found.os])}"
        text += f", python {found.python}, torch {found.torch}"
    return one_line(text)


def _false_alarms(alarms: FalseAlarms | None, by_design: float) -> str:
    measured = (
        "not measured on this machine; benchmarks/gate_self_test.py of dpbench's checkout measures it"
        if alarms is None
        else f"{alarms.alarms:,} of {alarms.of:,}, at most {share(alarms.upper)}; {one_line(alarms.gates)}"
    )
    return f"identical code called slower: {measured} (by design at most {share(by_design)} of suites)"


def _smallest(judgement: Judgement) -> str:
    return f"smallest detectable change: {' and '.join(_limits(judgement)) or 'not known, nothing was measured'}"


def _limits(judgement: Judgement) -> Iterator[str]:
    if judgement.counted_cases:
        counters = "a counter of the counted cases" if judgement.uncounted_cases else "any counter"
        yield f"a count of 1 in {counters} ({counted(judgement)})"
    found = [time.detectable for time in judgement.times if time.detectable is not None]
    if found:
        least, most = share(min(found)), share(max(found))
        yield f"{least if least == most else f'{least} to {most}, by benchmark,'} of a step's time, nine times in ten"
