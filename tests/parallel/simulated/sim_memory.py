"""The memory of cached replicas, compared with the stock wrapper on the same devices."""

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy

DEVICES = [f"sim:{i}" for i in range(4)]
LAYERS, WIDTH = 12, 32
LAYER_BYTES = 4 * (WIDTH * WIDTH + WIDTH)
BUCKET_BYTES = 3 * LAYER_BYTES
WIDE = 1700
WIDE_BYTES = 4 * (WIDE * WIDE + WIDE)  # above 10 MiB, so that the allocator gives each its own segment


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


def reserved_bytes(wrap, steps):
    """The memory that device 0 has reserved after some training steps in which the host waits for nothing."""
    base = nn.Sequential(*[nn.Linear(WIDE, WIDE) for _ in range(6)]).to("sim:0")
    wrapper = wrap(base)
    optimizer = torch.optim.SGD(base.parameters(), lr=0.01)
    before = torch.sim.memory_reserved(0)
    batch = torch.randn(16, WIDE)
    after = []
    for _ in range(steps):
        optimizer.zero_grad()
        wrapper(batch).sum().backward()
        optimizer.step()
        after.append(torch.sim.memory_reserved(0) - before)
    return after


def test_the_bases_device_keeps_a_few_buckets_more_than_stocks_however_far_the_host_runs_ahead():
    """Two to pack weights in, and one for each lane but the first to receive gradients in."""
    policy = Policy(bucket_bytes=WIDE_BYTES, first_bucket_bytes=WIDE_BYTES, dispatch="sequence")
    ours = reserved_bytes(lambda base: DataParallel(base, DEVICES, policy=policy), 12)
    assert ours[3] == ours[-1]
    stocks = reserved_bytes(lambda base: nn.DataParallel(base, [0, 1, 2, 3]), 4)
    segment = 2 << 20
    bucket = -(-WIDE_BYTES // segment) * segment
    assert ours[-1] <= stocks[-1] + (2 + len(DEVICES) - 1) * bucket, (ours[-1], stocks[-1])


@pytest.mark.parametrize("dispatch", ["sequence", "threads"])
def test_a_further_device_holds_at_most_its_parameters_and_a_bucket_more_than_stocks(dispatch):
    policy = Policy(bucket_bytes=BUCKET_BYTES, first_bucket_bytes=LAYER_BYTES, dispatch=dispatch)
    ours = peaks_bytes(lambda base: DataParallel(base, DEVICES, policy=policy))
    stocks = peaks_bytes(lambda base: nn.DataParallel(base, [0, 1, 2, 3]))
    extra = [mine - theirs for mine, theirs in zip(ours, stocks, strict=True)]
    assert max(extra[1:]) <= LAYERS * LAYER_BYTES + BUCKET_BYTES, (ours, stocks)
