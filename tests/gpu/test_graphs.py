"""Graphs of lanes that share a GPU. A GPU must confirm here what the stand-in for CUDA takes from the documentation."""

import copy

import pytest
import torch
from torch import nn

from dpbench.parallel import graphs
from dpbench.parallel.graph_waits import waits_are_for_earlier_records
from tests.gpu.device import DEVICE, LONG, SHORT, skip_without_gpu, synchronize, wrap

skip_without_gpu()
pytestmark = pytest.mark.gpu


def make():
    return nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 4)).to(DEVICE)


def trained(wrapper, batches):
    torch.cuda.manual_seed(3)
    optimizer = torch.optim.SGD(wrapper.module.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = wrapper(batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, wrapper.module.state_dict()


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "bfloat16"])
def test_training_by_graphs_equals_eager_training(lanes, autocast):
    base, batches = make(), [torch.randn(32, 16, device=DEVICE) for _ in range(graphs.WARM_UPS + 5)]
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        wanted = trained(wrap(copy.deepcopy(base), lanes, bucket_bytes=2000), batches)
        wrapper = wrap(base, lanes, bucket_bytes=2000, graphs=True, check_graphs=True)
        graphed = trained(wrapper, batches)
    torch.testing.assert_close(graphed, wanted)
    if lanes > 1:
        assert any(line.startswith("5 forwards: graphs (training") for line in wrapper.graph_report())


def test_a_wait_for_an_event_in_a_graph_waits_for_the_launch_before_it():
    """The hub waits so for a bucket: not for an earlier launch, and not for the end of the graph."""
    event, side, done = torch.cuda.Event(external=True), torch.cuda.Stream(), torch.cuda.Event()
    x, y, graph = *torch.zeros(2, 1000, device=DEVICE), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.cuda._sleep(SHORT)
        x.add_(1)
        event.record()
        torch.cuda._sleep(LONG)
        y.add_(1)
    x.sum().item()  # CUDA loads a kernel at its first launch, and that may wait for the device
    for launch in range(3):
        graph.replay()
        done.record()
        with torch.cuda.stream(side):
            side.wait_event(event)
            seen = x.sum().item()
        is_over = done.query()
        assert seen == 1000 * (launch + 1)
        assert not is_over
        synchronize()
        assert y.sum().item() == 1000 * (launch + 1)


def test_a_graph_waits_for_what_was_recorded_before_its_launch():
    """Else forwards wait for all weights before their launch (`graph_waits.py`)."""
    assert waits_are_for_earlier_records(torch.device(DEVICE))


def test_what_a_capture_refuses_runs_eagerly():
    class Reads(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return y if y.sum().item() > 0 else -y

    base, x = Reads(16, 4).to(DEVICE), torch.randn(32, 16, device=DEVICE)
    wrapper = wrap(base, 2, graphs=True)
    for _ in range(graphs.WARM_UPS):
        wrapper(x)
    with pytest.warns(UserWarning, match="a forward ran eagerly: the capture failed"):
        wrapper(x)
    nn.functional.dropout(torch.rand(5, device=DEVICE))  # a failed capture leaves the generator as it was
    trained(wrap(make(), 2, graphs=True), [x] * (graphs.WARM_UPS + 1))
    base.zero_grad()
    wrapper(x).sum().backward()
    wanted = copy.deepcopy(base)
    wanted.zero_grad()
    for chunk in x.chunk(2):
        wanted(chunk).sum().backward()
    torch.testing.assert_close(base.weight.grad, wanted.weight.grad)
