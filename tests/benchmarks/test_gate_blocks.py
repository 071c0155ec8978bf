"""The precision of a gate's round, from blocks whose spread is known."""

from math import pi, sqrt
from random import Random

import pytest

from benchmarks.gate_blocks import precision_of
from dpbench.results.record import Outcome
from dpbench.run.messages import LockstepRound, SideName

BLOCKS, SPREAD = 400, 0.05


def test_the_error_is_that_of_a_median_and_the_seconds_are_those_of_all_blocks():
    rng = Random(0)
    times_s = {side: tuple((0.01 * (1 + rng.gauss(0, SPREAD)),) * 2 for _ in range(BLOCKS)) for side in SideName}
    found = precision_of(LockstepRound(benchmark="a", outcome=Outcome.OK, times_s=times_s, cores="0", resident=True))
    # the contrast of three equal spreads has sqrt(3/2) of one; the median of n has sqrt(pi / 2n) of that
    assert found.error == pytest.approx(SPREAD * sqrt(1.5) * sqrt(pi / 2 / BLOCKS), rel=0.25)
    assert found.blocks == BLOCKS
    assert found.took_s == pytest.approx(3 * 2 * BLOCKS * 0.01, rel=0.01)
