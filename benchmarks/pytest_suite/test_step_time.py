"""Step times of the variants over the asv suite's grid, with pytest-benchmark's options.

One process does not show how processes differ. On a shared machine, equal processes differ by up to a fifth.
"""

import pytest

from dpbench.asv import grid
from dpbench.cases.variants import VariantName as V


# `ddp` needs a process for each device; asv and `dpbench compare` measure it.
def _but_the_first_whole(values):
    """All but the first of a grid's values are marked `whole`."""
    return [values[0], *(pytest.param(value, marks=pytest.mark.whole) for value in values[1:])]


VARIANTS = [V.TORCH_DP, V.NAIVE, V.FLOOR, V.TUNED, *grid.more_variants()]


@pytest.mark.dp_threshold(median="30%", minimum="30%")
@pytest.mark.parametrize("workload", _but_the_first_whole(grid.workloads()))
@pytest.mark.parametrize("lanes", _but_the_first_whole(grid.LANES))
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_step_time(dp_benchmark, benchmark, session_of, machine, share, variant, lanes, workload):
    try:
        case = grid.case_of(variant, workload, grid.BATCHES[0], lanes, machine)
    except grid.NotOnThisMachineError as reason:
        pytest.skip(str(reason))
    benchmark.group = case.setting
    session = session_of(case)
    dp_benchmark(
        session.step,
        devices=case.devices,
        rounds=max(20, share(40)),
        warmup_rounds=share(20),
        trials_left=session.trials_left,
    )
