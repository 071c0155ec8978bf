"""Tier 2: the steps up in the history of each benchmark that have lasted (`stats/lasting_steps.py`). Pure."""

from collections.abc import Iterable, Mapping

from dpbench.gate.history import Series
from dpbench.gate.judgement import Drift
from dpbench.stats.lasting_steps import MOST_POINTS, lasting_steps

OTHER_THRESHOLD = 0.1
"""The threshold of series from other runs: a few rounds each, new processes, all cores."""


def drifts(
    series: Iterable[Series], threshold_by_name: Mapping[str, float], other_threshold: float = OTHER_THRESHOLD
) -> tuple[Drift, ...]:
    """Return the lasting steps up of each series by more than its threshold, oldest first.

    Thresholds are shares, by the benchmark's name; a series without one has `other_threshold`. `before_s` is the level
    before the step. `after_s` is the level before the next step, or the present level after the last one. Series of
    fewer than `LEAST_POINTS` commits are skipped. Raises NoStepDetectionError without asv.
    """
    return tuple(
        Drift(
            benchmark=each.benchmark,
            before_s=before_s,
            after_s=after_s,
            since_commit=each.points[start].commit,
            since=each.points[start].day,
            points=min(len(each.points), MOST_POINTS),
        )
        for each in series
        for start, before_s, after_s in lasting_steps(
            [point.step_s for point in each.points], threshold_by_name.get(each.benchmark, other_threshold)
        )
    )
