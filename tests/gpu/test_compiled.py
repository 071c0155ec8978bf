"""Compiled lanes on GPUs: the numbers are those of eager lanes, and each device compiles once."""

import copy
import shutil

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters

from dpbench.parallel import DataParallel, Policy
from tests.gpu.device import DEVICE, is_stand_in, lagging, skip_without_gpu, synchronize

skip_without_gpu()
pytestmark = pytest.mark.gpu
COUNT = torch.cuda.device_count()
LANES = {"two": [0, 0], "four": [0, 0, 0, 0], **({"apart": list(range(COUNT))} if COUNT > 1 else {})}
BACKENDS = ["aot_eager", "inductor", "cudagraphs"]
STEPS = 8


@pytest.fixture(params=BACKENDS)
def backend(request):
    torch._dynamo.reset()
    counters.clear()
    if request.param != "aot_eager" and is_stand_in():
        pytest.skip("the stand-in runs no compiled kernels and edits no graph")
    if request.param == "inductor" and not (torch.utils._triton.has_triton() and shutil.which("gcc")):
        pytest.skip("Triton or its C compiler, gcc, is missing")
    return request.param


def make():
    layers = [nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)]
    return nn.Sequential(*layers).to(DEVICE)


def trained(wrapper, base, batches):
    optimizer = torch.optim.SGD(base.parameters(), lr=0.1)
    for x in batches:
        optimizer.zero_grad()
        wrapper(x).square().mean().backward()
        optimizer.step()
    synchronize()
    return list(base.state_dict().values())


def wrapped(model, devices, **policy):
    return DataParallel(model, devices, policy=Policy(bucket_bytes=4000, first_bucket_bytes=1000, **policy))


@pytest.mark.parametrize(
    ("lag", "graphs"), [(False, False), (True, False), (False, True)], ids=["", "lagging", "graphs"]
)
@pytest.mark.parametrize("name", LANES)
def test_compiled_lanes_train_as_eager_lanes_and_each_device_compiles_once(name, lag, graphs, backend):
    if graphs and backend == "cudagraphs":
        pytest.skip("this backend captures by itself")
    devices, base = LANES[name], make()
    batches = torch.randn(STEPS, 8 * len(devices), 16, device=DEVICE)
    eager = copy.deepcopy(base)
    want = trained(wrapped(eager, devices), eager, batches)
    wrapper = wrapped(torch.compile(base, backend=backend), devices, graphs=graphs)
    with lagging(set(devices) if lag else set()):
        got = trained(wrapper, base, batches)
    torch.testing.assert_close(got, want)
    assert counters["stats"]["unique_graphs"] == len(set(devices))
    if graphs:
        assert any("forwards: graphs (training" in line for line in wrapper.graph_report()), wrapper.graph_report()
    else:
        assert wrapper.compile_report()[-1] == f"{STEPS - 1} forwards: compiled"
