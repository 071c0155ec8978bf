import time

import pytest
import torch

from dpbench.measure.clock import make_clock
from dpbench.parallel import DataParallel, Policy


def test_on_the_cpu_the_clock_is_perf_counter_itself():
    assert make_clock([torch.device("cpu")] * 4) is time.perf_counter


class FakeAccelerator:
    """Two devices with queued work. Waiting for a device takes as long as its queue."""

    def __init__(self, queued_s):
        self.queued_s = dict(queued_s)
        self.now_s = 0.0

    def synchronize(self, device):
        self.now_s = max(self.now_s, self.queued_s[str(device)])


@pytest.mark.parametrize("queued_s", [{"cuda:0": 1.0, "cuda:1": 3.0}, {"cuda:0": 3.0, "cuda:1": 1.0}])
def test_the_clock_waits_for_the_slower_of_two_devices(monkeypatch, queued_s):
    accelerator = FakeAccelerator(queued_s)
    monkeypatch.setattr(torch, "get_device_module", lambda device: accelerator)
    monkeypatch.setattr(time, "perf_counter", lambda: accelerator.now_s)
    clock = make_clock([torch.device("cuda:0"), torch.device("cuda:1"), torch.device("cuda:0")])
    assert clock() == 3.0


class Sleeper(torch.nn.Module):
    """A module whose forward takes as many seconds as the largest number in its input."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        time.sleep(float(x.max()))
        return x * self.weight


@pytest.mark.parametrize("lanes_s", [(0.01, 0.06), (0.06, 0.01)])
def test_the_clock_waits_for_the_slower_of_two_cpu_lanes(lanes_s):
    model = DataParallel(Sleeper(), ["cpu"] * 2, policy=Policy(dispatch="threads"))
    clock = make_clock([torch.device("cpu")] * 2)
    start_s = clock()
    model(torch.tensor(lanes_s))
    assert clock() - start_s >= max(lanes_s)
