"""A gate's judgement as CSV (RFC 4180): one row for the whole, then one for each finding."""

import csv
from collections.abc import Iterator
from io import StringIO

from dpbench.gate.judgement import Accepted, CounterChange, Drift, Judgement, TimeJudgement, Verdict
from dpbench.report.gate.tables import direction, slowest_first, worst_first
from dpbench.sweep.outside import one_line

COLUMNS = (
    *("base_commit", "head_commit", "tier", "benchmark", "quantity", "base", "head"),
    *("head_over_base", "low", "high", "tolerated", "verdict", "accepted", "why"),
)
STEP_TIME = "step time, s"
_FORMULA = ("=", "+", "-", "@")

Row = dict[str, str | int | float | None]


def gate_csv(judgement: Judgement) -> str:
    """Return a header and the rows. Times are seconds, ratios and tolerated growths are shares; empty is unknown.

    An accepted finding passes. A spreadsheet takes a text that begins with one of ``= + - @`` as a formula. Such a text
    gets an apostrophe.
    """
    commits: Row = {
        "base_commit": _text(judgement.base.commit or judgement.base.asked),
        "head_commit": _text(judgement.head.commit or judgement.head.asked or judgement.head.short),
    }
    written = StringIO()
    table = csv.DictWriter(written, COLUMNS, restval="")
    table.writeheader()
    table.writerows({**commits, **row} for row in _rows(judgement))
    return written.getvalue()


def _rows(judgement: Judgement) -> Iterator[Row]:
    yield {"quantity": "all", "verdict": judgement.verdict, "why": _text(judgement.why)}
    yield from map(_counter, worst_first(judgement.counters))
    yield from map(_time, slowest_first(judgement.times))
    yield from (_drift(drift, judgement) for drift in judgement.drifts)


def _counter(change: CounterChange) -> Row:
    is_slower = change.is_worse and change.accepted is None
    return {
        "tier": 0,
        "benchmark": _text(change.benchmark),
        "quantity": _text(change.counter),
        "base": change.base,
        "head": change.head,
        "head_over_base": _over(change.head, change.base),
        "verdict": Verdict.SLOWER if is_slower else Verdict.PASS,
        "accepted": _reason(change.accepted),
        "why": direction(change),
    }


def _time(time: TimeJudgement) -> Row:
    is_accepted = time.accepted is not None and time.verdict is not Verdict.BROKEN
    row: Row = {
        "tier": 1,
        "benchmark": _text(time.benchmark),
        "quantity": STEP_TIME,
        "base": time.base_step_s,
        "head": time.head_step_s,
        "tolerated": time.threshold,
        "verdict": Verdict.PASS if is_accepted else time.verdict,
        "accepted": _reason(time.accepted),
        "why": _text(time.why),
    }
    if time.ratio is not None:
        row |= {"head_over_base": time.ratio.value, "low": time.ratio.low, "high": time.ratio.high}
    return row


def _drift(drift: Drift, judgement: Judgement) -> Row:
    is_slower = drift.accepted is None and judgement.verdict is not Verdict.PASS
    return {
        "tier": 2,
        "benchmark": _text(drift.benchmark),
        "quantity": STEP_TIME,
        "base": drift.before_s,
        "head": drift.after_s,
        "head_over_base": _over(drift.after_s, drift.before_s),
        "verdict": Verdict.SLOWER if is_slower else Verdict.PASS,
        "accepted": _reason(drift.accepted),
        "why": _text(f"since {drift.since_commit} of {drift.since}"),
    }


def _over(head: float | None, base: float | None) -> float | None:
    return head / base if head is not None and base else None


def _reason(accepted: Accepted | None) -> str:
    return "" if accepted is None else _text(f"until {accepted.expires}: {accepted.reason}")


def _text(text: str) -> str:
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line
