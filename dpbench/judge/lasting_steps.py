"""The steps up in a series of step times that have lasted, found by asv's step detection.

A piecewise constant function is fitted whose jumps cost a penalty; upward jumps that no later jump undoes count. The
penalty is that of asv's `solve_potts_approx`: three times the mean deviation, times log n. The deviation here is that
of the noise, from the differences between neighbours. asv's own `detect_steps` takes that around one level, which hides
a slow drift. Of 300 series that grow by 1 % a commit for 12 commits, with 0.3 % of noise, it finds a step in none.

A level needs at least three commits, so an outlier is no step.

The share of 300 simulated series in which a drift is found, in percent; threshold 3 %, log-normal noise with standard
deviation s. "Spikes": one point in twenty is 10 % too slow. "Blocks": four neighbours share a disturbance of s.

         s   flat, points: 6    12    40   100   spikes, 40   blocks, 40   +1 % x 12   +0.2 % x 40   5 % from 13 of 20
     0.3 %               0.0   0.0   0.0   0.0          2.3          0.0       100.0         100.0               100.0
       1 %               0.0   0.0   0.0   0.0          2.0          9.3        99.7         100.0               100.0
       2 %               0.0   0.3   0.0   0.0          0.0         43.7        79.3          94.3                76.3
       3 %               0.3   0.3   0.0   0.0          0.0                     49.3          57.3                36.0

A machine that is slower on some days makes blocks. If those days differ by more than a third of the threshold, read its
drifts as hints.
"""

from collections.abc import Sequence
from math import log, pi, sqrt

import numpy as np

from dpbench.errors import UnusableMachineError

LEAST_POINTS = 6
MOST_POINTS = 300
"""The latest commits only: the time grows with the cube of their number; 400 take a second."""

_LEAST_AT_A_LEVEL = 3
_PENALTY = 3.0
# mean and median absolute deviation of a normal distribution, in standard deviations
_MEAN_DEVIATION = sqrt(2 / pi)
_MEDIAN_DEVIATION = 0.6745


def lasting_steps(times_s: Sequence[float], threshold: float) -> list[tuple[int, float, float]]:
    """The first point of each lasting step up by more than the threshold, and the levels before and after it.

    The newest `MOST_POINTS` count; fewer than `LEAST_POINTS` have no step. Raise UnusableMachineError without asv.
    """
    left_out = max(0, len(times_s) - MOST_POINTS)
    newest_s = list(times_s[left_out:])
    if len(newest_s) < LEAST_POINTS:
        return []
    return [(left_out + start, before_s, after_s) for start, before_s, after_s in _jumps(newest_s, threshold)]


def _jumps(times_s: list[float], threshold: float) -> list[tuple[int, float, float]]:
    try:
        from asv.step_detect import detect_regressions, solve_potts  # type: ignore[import-untyped]
    except ImportError as error:
        raise UnusableMachineError(
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
    """The mean deviation, from the median difference of neighbours, which a drift does not raise."""
    return _MEAN_DEVIATION * float(np.median(np.abs(np.diff(times_s)))) / _MEDIAN_DEVIATION / sqrt(2)
