"""Which steps in a series of step times are drifts."""

import sys
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from dpbench.errors import UnusableMachineError
from dpbench.gate.history import drifts
from dpbench.gate.judgement import Drift
from dpbench.judge.lasting_steps import LEAST_POINTS, MOST_POINTS
from tests.gate.making_history import series

THRESHOLD = {"wide": 0.03}


def noisy(level: NDArray[np.float64], noise: float, seed: int) -> list[float]:
    """Step times in seconds, around 10 ms."""
    return list(0.01 * level * np.exp(np.random.default_rng(seed).normal(0, noise, len(level))))


@pytest.mark.parametrize("seed", range(20))
def test_a_slow_drift_is_found_though_no_commit_reaches_the_threshold(seed: int) -> None:
    times_s = noisy(1.01 ** np.arange(12), 0.003, seed)
    assert max(np.diff(times_s) / times_s[:-1]) < 0.03
    reported = drifts([series(times_s)], THRESHOLD)
    assert reported
    assert all(after.before_s == before.after_s for before, after in pairwise(reported))
    assert all(drift.after_s > 1.03 * drift.before_s for drift in reported)


def test_a_step_has_its_levels_commit_date_and_number_of_points() -> None:
    assert drifts([series([0.01] * 7 + [0.0105] * 5)], THRESHOLD) == (
        Drift(
            benchmark="wide",
            before_s=0.01,
            after_s=0.0105,
            since_commit="commit 7",
            since="1970-01-08",
            points=12,
        ),
    )


def test_every_lasting_step_is_found_oldest_first() -> None:
    reported = drifts([series([1.0] * 6 + [1.1] * 6 + [1.3] * 6)], THRESHOLD)
    assert [(drift.before_s, drift.after_s, drift.since_commit) for drift in reported] == [
        (1.0, 1.1, "commit 6"),
        (1.1, 1.3, "commit 12"),
    ]


def test_a_step_that_was_mended_in_part_has_its_remaining_height() -> None:
    (drift,) = drifts([series([1.0] * 6 + [1.3] * 6 + [1.1] * 6)], THRESHOLD)
    assert (drift.before_s, drift.after_s, drift.since_commit) == (1.0, 1.1, "commit 6")


@pytest.mark.parametrize("noise", [0.01, 0.02])
@pytest.mark.parametrize("seed", range(10))
def test_flat_noise_is_no_drift(seed: int, noise: float) -> None:
    assert drifts([series(noisy(np.ones(40), noise, seed))], THRESHOLD) == ()


@pytest.mark.parametrize("seed", range(10))
def test_a_step_that_was_mended_is_no_drift(seed: int) -> None:
    level = np.repeat([1.0, 1.1, 1.0], 10)
    assert drifts([series(noisy(level, 0.01, seed))], THRESHOLD) == ()
    assert drifts([series(noisy(level[:20], 0.01, seed))], THRESHOLD) != ()


@pytest.mark.parametrize("level", [[1.1] * 6 + [1.0] * 6, [1.0] * 12, [1.0] * 6 + [1.02] * 6])
def test_faster_equal_and_less_than_the_threshold_are_no_drifts(level: list[float]) -> None:
    assert drifts([series(level)], THRESHOLD) == ()


@pytest.mark.parametrize("where", [0, 5, 10, 11])
@pytest.mark.parametrize("times", [0.8, 1.25])
def test_one_outlier_is_no_drift(where: int, times: float) -> None:
    level = np.ones(12)
    level[where] *= times
    assert drifts([series(noisy(level, 0.003, 0))], THRESHOLD) == ()


def test_thresholds_are_by_name_and_wider_for_series_without_one() -> None:
    steps = [1.0] * 6 + [1.08] * 6
    assert [drift.benchmark for drift in drifts([series(steps, name) for name in ("wide", "other")], THRESHOLD)] == [
        "wide"
    ]
    assert drifts([series(steps)], {"wide": 0.09}) == ()
    assert drifts([series([1.0] * 6 + [1.15] * 6, "other")], THRESHOLD) != ()
    assert drifts([series([1.0] * 6 + [1.12] * 6, "other")], THRESHOLD) != ()


def test_fewer_than_six_points_are_skipped() -> None:
    assert LEAST_POINTS == 6
    assert drifts([series([1.0] * 3 + [1.5] * 3)], THRESHOLD) != ()
    assert drifts([series([1.0] * 2 + [1.5] * 3)], THRESHOLD) == ()
    assert drifts([series([])], THRESHOLD) == ()


def test_only_the_latest_commits_of_a_long_history_are_read() -> None:
    recent = [1.0] * (MOST_POINTS - 20) + [1.1] * 20
    (drift,) = drifts([series([0.5] * 50 + recent)], THRESHOLD)
    assert (drift.before_s, drift.points, drift.since_commit) == (1.0, MOST_POINTS, f"commit {50 + MOST_POINTS - 20}")


@pytest.mark.parametrize("scale", [1e-6, 1e3])
def test_the_unit_of_time_does_not_matter(scale: float) -> None:
    def starts(times_s: list[float]) -> list[str]:
        return [drift.since_commit for drift in drifts([series(times_s)], THRESHOLD)]

    times_s = noisy(1.01 ** np.arange(12), 0.003, 3)
    assert starts([scale * time_s for time_s in times_s]) == starts(times_s) != []


def test_without_asv_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asv.step_detect", None)
    with pytest.raises(UnusableMachineError) as caught:
        drifts([series([1.0] * 12)], THRESHOLD)
    assert str(caught.value).endswith(
        "asv, which finds the steps in it, is not installed; install it by: pip install 'torch-dpbench[suites]'"
    )
    assert drifts([series([1.0] * 5)], THRESHOLD) == ()
