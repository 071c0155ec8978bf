"""Step times of the variants, with pytest-benchmark's options; the points are those of the asv suite.

One process tells nothing of how processes differ: on a shared machine identical ones are up to a fifth apart.
"""

import pytest

from dpbench.sweep import history
from dpbench.sweep.names import VariantName as V

# `ddp` has a process for each device, which one pytest is not; asv and `dpbench compare` measure it.
VARIANTS = [V.TORCH_DP, V.NAIVE, V.FLOOR, V.TUNED]


@pytest.mark.dp_threshold(median="30%", minimum="30%")
@pytest.mark.parametrize("workload", history.WORKLOADS)
@pytest.mark.parametrize("lanes", history.LANES)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_step_time(dp_benchmark, benchmark, step_of, box, variant, lanes, workload):
    try:
        case = history.case_of(variant, workload, history.BATCHES[0], lanes, box)
    except history.NotOnThisBoxError as reason:
        pytest.skip(str(reason))
    benchmark.group = case.setting
    dp_benchmark(step_of(case), devices=case.devices, rounds=40, warmup_rounds=20)
