"""The memory that a host far ahead of its devices reserves on the first one, beside the stock wrapper's."""

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel.transfer import are_sound
from tests.cuda_stand_in import control

LANES = 4
STEPS, STOCKS_STEPS = 50, 8
LAG_S = 0.001
LAYERS, WIDE = 3, 1700
WIDE_BYTES = 4 * (WIDE * WIDE + WIDE)  # above 10 MiB, so that the allocator gives each its own segment
SEGMENT_BYTES = 2 << 20
BUCKET_BYTES = -(-WIDE_BYTES // SEGMENT_BYTES) * SEGMENT_BYTES

if torch.cuda.device_count() < LANES:
    pytest.skip(f"these runs have {LANES} devices, and there are {torch.cuda.device_count()}", allow_module_level=True)
for other in range(1, LANES):  # the first copy over a link tests it, and waits
    are_sound(torch.device("cuda", 0), torch.device("cuda", other))


def reserved_bytes(wrap, slow, steps):
    """Return what device 0 has reserved after each step. One device lags, and the host waits for nothing."""
    for device in range(LANES):
        torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    base = nn.Sequential(*[nn.Linear(WIDE, WIDE) for _ in range(LAYERS)]).to("cuda:0")
    wrapper, optimizer = wrap(base), torch.optim.SGD(base.parameters(), lr=0.01)
    batch, before, after = torch.randn(16, WIDE, device="cuda:0"), torch.cuda.memory_reserved(0), []
    torch.cuda.synchronize()
    waits = control.counts()["host_waits"]
    with control.lagging({slow: LAG_S}):
        for _ in range(steps):
            optimizer.zero_grad()
            wrapper(batch).sum().backward()
            optimizer.step()
            after.append(torch.cuda.memory_reserved(0) - before)
        assert not torch.cuda.current_stream(0).query()  # the host is ahead
    assert control.counts()["host_waits"] == waits
    return after


@pytest.mark.parametrize("slow", [0, LANES - 1])
def test_the_first_device_reserves_at_most_a_bucket_for_each_lane_more_than_stocks(slow):
    policy = Policy(bucket_bytes=WIDE_BYTES, first_bucket_bytes=WIDE_BYTES, dispatch="sequence")
    devices = [f"cuda:{index}" for index in range(LANES)]
    ours = reserved_bytes(lambda base: DataParallel(base, devices, policy=policy), slow, STEPS)
    stocks = reserved_bytes(lambda base: nn.DataParallel(base, list(range(LANES))), slow, STOCKS_STEPS)
    for name, reserved in (("tuned", ours), ("stock", stocks)):
        print(f"device {slow} lags, {name}: {[round(size_bytes / BUCKET_BYTES, 1) for size_bytes in reserved]} buckets")  # noqa: T201
    assert ours[STEPS // 2 - 1] == ours[-1]
    assert ours[-1] <= stocks[-1] + LANES * BUCKET_BYTES
