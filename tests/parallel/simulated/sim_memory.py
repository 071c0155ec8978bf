"""The memory of cached replicas, compared with the stock wrapper on the same devices."""

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy

DEVICES = [f"sim:{i}" for i in range(4)]
LAYERS, WIDTH = 12, 32
LAYER_BYTES = 4 * (WIDTH * WIDTH + WIDTH)
BUCKET_BYTES = 3 * LAYER_BYTES


def peaks_bytes(wrap):
    """The peak of each device, in bytes, in the last of some training steps."""
    base = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]).to("sim:0")
    wrapper = wrap(base)
    optimizer = torch.optim.SGD(base.parameters(), lr=0.01)
    for _ in range(4):
        for device in DEVICES:
            torch.sim.reset_peak_memory_stats(device)
        optimizer.zero_grad()
        wrapper(torch.randn(16, WIDTH)).sum().backward()
        optimizer.step()
    return [torch.sim.max_memory_allocated(device) for device in DEVICES]


@pytest.mark.parametrize("dispatch", ["sequence", "threads"])
def test_a_further_device_holds_at_most_its_parameters_and_a_bucket_more_than_stocks(dispatch):
    policy = Policy(bucket_bytes=BUCKET_BYTES, first_bucket_bytes=LAYER_BYTES, dispatch=dispatch)
    ours = peaks_bytes(lambda base: DataParallel(base, DEVICES, policy=policy))
    stocks = peaks_bytes(lambda base: nn.DataParallel(base, [0, 1, 2, 3]))
    extra = [mine - theirs for mine, theirs in zip(ours, stocks, strict=True)]
    assert max(extra[1:]) <= LAYERS * LAYER_BYTES + BUCKET_BYTES, (ours, stocks)
