"""The rule that everything uses which calls something slower."""

from math import log

import pytest

from dpbench.judge.decision import decide


@pytest.mark.parametrize(
    ("ratio", "low", "high", "verdict"),
    [
        (1.2, 1.1, 1.3, "slower"),
        (1.2, 0.9, 1.3, "undecided"),
        (1.04, 1.01, 1.2, "undecided"),  # it grew, and may have grown by more than the limit
        (1.04, 1.01, 1.045, "pass"),
        (1.0, 0.96, 1.04, "pass"),
        (0.5, 0.4, 0.6, "faster"),
    ],
)
def test_a_ratio_is_held_against_no_change_and_a_limit(ratio: float, low: float, high: float, verdict: str) -> None:
    assert decide(ratio, (low, high), same=1.0, limit=1.05) == verdict
    assert decide(log(ratio), (log(low), log(high)), same=0.0, limit=log(1.05)) == verdict


def test_what_must_be_above_more_than_the_limit_is_undecided_below_it() -> None:
    assert decide(1.2, (1.1, 1.3), same=1.0, limit=1.05, slower_above=1.25) == "undecided"
