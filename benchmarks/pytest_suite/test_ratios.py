"""Ratios of step times in one process. No test fails on a slow machine."""

import pytest

from benchmarks.pytest_suite.settings import Setting
from dpbench.cases.variants import VariantName as V

LAUNCH_BOUND = Setting("mlp/small", batch=64, devices=("cpu",) * 4, rounds=300)
ATTENTION = Setting("transformer/tiny", batch=16, devices=("cpu",) * 4, rounds=300)  # launch-bound too
FIXED_COSTS = Setting("mlp/tiny", batch=64, devices=("cpu",) * 4, rounds=1000)  # a very short step
COMPUTE_BOUND = Setting("mlp/base", batch=512, devices=("cpu",) * 4, rounds=60)
ONE_LANE = Setting("mlp/small", batch=64, devices=("cpu",), rounds=2000)

# The techniques that have an effect on CPU lanes, where nothing overlaps.
TECHNIQUES = (
    V.TUNED,
    "tuned[dispatch=threads]",
    "tuned[cache_replicas=false]",
    "tuned[coalesce=false]",
    "tuned[skip_unchanged=true]",
    V.NAIVE,
)


@pytest.mark.parametrize(
    ("setting", "pairs"),
    [
        pytest.param(LAUNCH_BOUND, [(V.TUNED, V.FLOOR), (V.NAIVE, V.FLOOR), (V.TUNED, V.NAIVE)], id="launch-bound"),
        pytest.param(ATTENTION, [(V.TUNED, V.FLOOR), (V.NAIVE, V.FLOOR), (V.TUNED, V.NAIVE)], id="attention"),
        pytest.param(FIXED_COSTS, [(V.TUNED, V.FLOOR), (V.NAIVE, V.FLOOR), (V.TUNED, V.NAIVE)], id="fixed-costs"),
        pytest.param(
            COMPUTE_BOUND,
            [(V.TUNED, V.FLOOR), (V.NAIVE, V.FLOOR), (V.TUNED, V.NAIVE)],
            id="compute-bound",
            marks=pytest.mark.whole,
        ),
        pytest.param(LAUNCH_BOUND, [(name, V.FLOOR) for name in TECHNIQUES], id="techniques", marks=pytest.mark.whole),
        pytest.param(ONE_LANE, [(V.TUNED, V.SINGLE)], id="one-lane"),
    ],
)
def test_ratios(measure_ratios, setting, pairs):
    ratios = measure_ratios(setting, pairs)
    assert len(ratios) == len(pairs)
    assert all(ratio.rounds <= setting.rounds and 0 < ratio.low <= ratio.value <= ratio.high for ratio in ratios)
