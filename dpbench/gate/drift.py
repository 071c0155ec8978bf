"""Tier 2: find the steps up in a series of step times that have lasted. Pure.

asv's step detection finds them. It fits a piecewise constant function whose jumps cost a penalty, and returns the
upward jumps that no later jump undoes. The penalty is that of asv's `solve_potts_approx`: three times the mean
deviation, times log n. The deviation here is that of the noise, from the differences between neighbours. asv's own
`detect_steps` takes the deviation around one level and allows for correlated noise. Both hide a slow drift. Of 300
series that grow by 1 % a commit for 12 commits, with 0.3 % of noise, `detect_steps` finds a step in none. This
function finds one in all.

A level needs at least three commits, so an outlier is no step. A step of the last two commits is left to the gate that
compares them.

The share of 300 simulated series in which a drift is found, in percent; threshold 3 %, log-normal noise with standard
deviation s. "Spikes": one point in twenty is 10 % too slow. "Blocks": four neighbours share a disturbance of s.

         s   flat, points: 6    12    40   100   spikes, 40   blocks, 40   +1 % x 12   +0.2 % x 40   5 % from 13 of 20
     0.3 %               0.0   0.0   0.0   0.0          2.3          0.0       100.0         100.0               100.0
       1 %               0.0   0.0   0.0   0.0          2.0          9.3        99.7         100.0               100.0
       2 %               0.0   0.3   0.0   0.0          0.0         43.7        79.3          94.3                76.3
       3 %               0.3   0.3   0.0   0.0          0.0                     49.3          57.3                36.0

0 of 300 is below 1.2 % with 97.5 % confidence. A machine that is slower on some days makes blocks. If those days differ
by more than a third of the threshold, read its drifts as hints.
"""

from collections.abc import Iterable, Mapping
from math import log, pi, sqrt

import numpy as np

from dpbench.errors import GateError
from dpbench.gate.history import Series
from dpbench.gate.judgement import Drift

LEAST_POINTS = 6
MOST_POINTS = 300
"""The latest commits only: the time grows with the cube of their number; 400 take a second."""
OTHER_THRESHOLD = 0.1
"""The threshold of series from other runs: a few rounds each, new processes, all cores."""

_LEAST_AT_A_LEVEL = 3
_PENALTY = 3.0
# mean and median absolute deviation of a normal distribution, in standard deviations
_MEAN_DEVIATION = sqrt(2 / pi)
_MEDIAN_DEVIATION = 0.6745


class NoStepDetectionError(GateError):
    """asv, which detects the steps, is not installed."""


def drifts(
    series: Iterable[Series], threshold_by_name: Mapping[str, float], other_threshold: float = OTHER_THRESHOLD
) -> tuple[Drift, ...]:
    """Return the lasting steps up of each series by more than its threshold, oldest first.

    Thresholds are shares, by the benchmark's name; a series without one has `other_threshold`. `before_s` is the level
    before the step. `after_s` is the level before the next step, or the present level after the last one. Series of
    fewer than `LEAST_POINTS` commits are skipped. Raises NoStepDetectionError without asv.
    """
    found = list[Drift]()
    for each in series:
        if len(each.points) >= LEAST_POINTS:
            found += _drifts(each, threshold_by_name.get(each.benchmark, other_threshold))
    return tuple(found)


def _drifts(series: Series, threshold: float) -> list[Drift]:
    points = series.points[-MOST_POINTS:]
    return [
        Drift(
            benchmark=series.benchmark,
            before_s=before_s,
            after_s=after_s,
            since_commit=points[start].commit,
            since=points[start].day,
            points=len(points),
        )
        for start, before_s, after_s in _jumps([point.step_s for point in points], threshold)
    ]


def _jumps(times_s: list[float], threshold: float) -> list[tuple[int, float, float]]:
    """Return the first point of each lasting upward jump, and the levels before and after it."""
    try:
        from asv.step_detect import detect_regressions, solve_potts  # type: ignore[import-untyped]
    except ImportError as error:
        raise NoStepDetectionError(
            "history: asv, which finds the steps in it, is not installed; "
            "install it by: pip install 'torch-dpbench[suites]'"
        ) from error
    if max(times_s) < (1 + threshold) * min(times_s):
        return []  # levels lie between the shortest and the longest time; the detection of steps is slow
    count = len(times_s)
    penalty = _PENALTY * _noise_s(times_s) * log(count)
    ends, levels, distances = solve_potts(times_s, [1] * count, penalty, min_size=_LEAST_AT_A_LEVEL)
    steps = [
        (start, end, level, min(times_s[start:end]), distance / (end - start))
        for start, end, level, distance in zip([0, *ends[:-1]], ends, levels, distances, strict=True)
    ]
    present_s, _, jumps = detect_regressions(steps, threshold)
    levels_s = [float(level) for _, _, level, _ in jumps or ()]
    return list(zip([start for _, start, _, _ in jumps or ()], levels_s, [*levels_s[1:], present_s], strict=False))


def _noise_s(times_s: list[float]) -> float:
    """The mean deviation of the noise, from the median difference of neighbours.

    Few neighbours have a step between them, so a drift does not raise it.
    """
    return _MEAN_DEVIATION * float(np.median(np.abs(np.diff(times_s)))) / _MEDIAN_DEVIATION / sqrt(2)
