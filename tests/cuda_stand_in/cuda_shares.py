"""`Policy(shares="auto")` on devices with times: a lagging device gets less of the batch, and the host never waits."""

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel.shares.measured import SAMPLES
from dpbench.parallel.shares.sizes import chunk_sizes
from dpbench.parallel.shares.trials import MAX_TRIALS
from tests.cuda_stand_in.control import counts, lagging

STEPS = (MAX_TRIALS + 2) * (SAMPLES + 3)
LAGS_S = {0: 0.004, 1: 0.001, 2: 0.001, 3: 0.001}


class Rows(nn.Module):
    """A kernel for each item, so that a device that lags takes longer for each item."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return torch.stack([self.inner(row) for row in x])


@pytest.mark.parametrize("dispatch", ["sequence", "threads", "interleaved"])
def test_a_device_that_lags_gets_less_and_the_choice_stays(dispatch):
    base, x = Rows(), torch.randn(32, 4)
    expected = base(x)
    wrapper = DataParallel(base.cuda(), list(LAGS_S), policy=Policy(shares="auto", dispatch=dispatch))
    seen = []
    with lagging(LAGS_S):
        for _ in range(STEPS):
            out = wrapper(x)
            out.sum().backward()
            torch.testing.assert_close(out.cpu(), expected)
            seen.append(wrapper.shares)
    assert wrapper._measured_shares.is_fixed
    assert chunk_sizes(32, 4, wrapper.shares)[0] <= 6
    assert len(set(seen[-SAMPLES:])) == 1


def test_the_host_waits_for_no_device_while_it_measures():
    wrapper = DataParallel(nn.Linear(4, 4).cuda(), list(LAGS_S), policy=Policy(shares="auto", dispatch="sequence"))
    x = torch.randn(32, 4).cuda()
    waits = counts()["host_waits"]
    for _ in range(2 * SAMPLES):
        wrapper(x).sum().backward()
    assert counts()["host_waits"] == waits
    assert wrapper._measured_shares._now is not None or wrapper._measured_shares._trials
