import math

import pytest

from dpbench.run.runner import LEAST_S, child_budget, forecast


def test_the_time_left_is_divided_evenly_without_the_startup():
    assert child_budget(120.0, jobs=10, startup_s=4.0, most_s=60.0) == pytest.approx(8.0)


@pytest.mark.parametrize(("remaining_s", "budget_s"), [(0.0, LEAST_S), (-50.0, LEAST_S), (math.inf, 60.0)])
def test_a_budget_has_bounds(remaining_s, budget_s):
    assert child_budget(remaining_s, jobs=3, startup_s=4.0, most_s=60.0) == budget_s


@pytest.mark.parametrize(
    ("left", "seen", "total"),
    [
        (["a", "a"], [], 14.0),
        (["a", "a"], [("a", 1.0), ("a", 2.0), ("a", 9.0)], 4.0),
        (["a", "b", "new"], [("a", 1.0), ("b", 5.0), ("b", 3.0)], 1.0 + 4.0 + 3.0),
        ([], [("a", 1.0)], 0.0),
    ],
)
def test_a_key_is_expected_to_repeat_its_median(left, seen, total):
    assert forecast(left, seen, guess=7.0) == total
