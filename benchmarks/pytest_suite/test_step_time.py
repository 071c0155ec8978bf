"""Step times of the variants over the asv suite's grid, with pytest-benchmark's options.

One process does not show how processes differ. On a shared machine, equal processes differ by up to a fifth.
"""

import pytest

from dpbench.asv import grid
from dpbench.cases.variants import VariantName as V

# `ddp` needs a process for each device; asv and `dpbench compare` measure it.
VARIANTS = [V.TORCH_DP, V.NAIVE, V.FLOOR, V.TUNED, *grid.more_variants()]


@pytest.mark.dp_threshold(median="30%", minimum="30%")
@pytest.mark.parametrize("workload", grid.WORKLOADS)
@pytest.mark.parametrize("lanes", grid.LANES)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_step_time(dp_benchmark, benchmark, session_of, machine, variant, lanes, workload):
    try:
        case = grid.case_of(variant, workload, grid.BATCHES[0], lanes, machine)
    except grid.NotOnThisMachineError as reason:
        pytest.skip(str(reason))
    benchmark.group = case.setting
    session = session_of(case)
    dp_benchmark(session.step, devices=case.devices, rounds=40, warmup_rounds=20, trials_left=session.trials_left)
