"""A gate's judgement as JSON: dpbench's own object with the exit code, and Bencher Metric Format.

``bencher run --adapter json --file FILE`` reads the second: https://bencher.dev/docs/reference/bencher-metric-format.
It is an object by benchmark, and in it by measure. A measure has ``value``, and the ends of its interval as
``lower_value`` and ``upper_value``. All values are head's, because Bencher compares them with the earlier ones.

SCHEMA history
    1  first.
"""

import json
from collections import defaultdict
from typing import Any

from dpbench.gate.judgement import Judgement, TimeJudgement, Verdict
from dpbench.sweep.outside import one_line

SCHEMA = 1
EXIT_CODES = {Verdict.PASS: 0, Verdict.SLOWER: 1, Verdict.UNDECIDED: 2, Verdict.BROKEN: 3}


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
