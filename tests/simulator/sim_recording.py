"""A recording holds operators, copies, memory and waits, and is the same on every run."""

import torch
from torch import nn

from dpbench.records.recording import Allocate, Copy, Free, HostWait, Mark, Operator, Wait
from dpbench.simulator import Recording, mark, recording

sim = torch.get_device_module("sim")


def of(recorded, kind):
    return [event for event in recorded.events if isinstance(event, kind)]


def test_operators_have_their_flops_bytes_and_inputs():
    x, w = torch.ones(2, 3, device="sim:1"), torch.ones(3, 4, device="sim:1")
    with recording() as recorded:
        y = x @ w
        y.add_(1).t()
    product, add, transpose = of(recorded, Operator)
    assert (product.name, product.device, product.flops) == ("aten.mm.default", 1, 2 * 2 * 3 * 4)
    assert (product.read_bytes, product.written_bytes) == ((6 + 12) * 4, 8 * 4)
    assert "sim_recording.py:" in product.line
    assert (add.inputs, add.read_bytes, add.written_bytes) == ((product.id,), 32, 32)
    assert not transpose.is_launched
    assert len(of(recorded, Allocate)) == 1


def test_a_grouped_convolution_has_a_share_of_the_flops_in_the_backward_too():
    x = torch.ones(2, 8, 5, 5, device="sim:0", requires_grad=True)
    flops = {}
    for groups in (1, 4):
        layer = nn.Conv2d(8, 8, 3, padding=1, groups=groups, bias=False, device="sim:0")
        with recording() as recorded:
            layer(x).sum().backward()
        flops[groups] = [o.flops for o in of(recorded, Operator) if "convolution" in o.name]
    forward = 2 * 2 * 25 * 8 * 8 * 9
    assert flops == {1: [forward, 2 * forward], 4: [forward // 4, forward // 2]}


def test_inputs_include_events_before_the_recording():
    x = torch.ones(3, device="sim:0")
    with recording() as one:
        y = x * 2
    with recording() as other:
        y * 2
    assert of(other, Operator)[0].inputs == (of(one, Operator)[0].id,)


def test_copies_have_their_link_and_bytes():
    with recording() as recorded:
        x = torch.ones(10).to("sim:0")
        y = x.to("sim:3", non_blocking=True)
        z = torch.empty(10, device="sim:1").copy_(y)
        z.cpu()
        z.sum().item()
    assert [(c.source, c.destination, c.size_bytes) for c in of(recorded, Copy)] == [
        (None, 0, 40),
        (0, 3, 40),
        (3, 1, 40),
        (1, None, 40),
        (1, None, 4),
    ]
    assert len(of(recorded, HostWait)) == 3, "for the copy from the host and the two to it"


def test_waits_hold_the_events_that_they_wait_for():
    side, main = sim.Stream(0), sim.default_stream(0)
    with recording() as recorded:
        x = torch.ones(3, device="sim:0")
        side.wait_stream(main)
        with sim.stream(side):
            x * 2
    wait = of(recorded, Wait)[0]
    assert wait.stream == side.stream_id
    assert wait.after == (of(recorded, Operator)[-2].id,)
    assert recorded.streams[side.stream_id] == 0


def test_marks_and_frees_are_in_program_order():
    with recording() as recorded:
        x = torch.ones(3, device="sim:0")
        mark("between")
        del x
        mark("after")
    kinds = [type(event) for event in recorded.events if isinstance(event, (Allocate, Free, Mark))]
    assert kinds == [Allocate, Mark, Free, Mark]


def test_ids_grow_and_waits_and_inputs_refer_to_earlier_events():
    _, recorded = step()
    ids = [event.id for event in recorded.events]
    assert ids == sorted(set(ids))
    for event in recorded.events:
        assert all(earlier < event.id for earlier in getattr(event, "inputs", getattr(event, "after", ())))


def step():
    """Return a base and the recording of one step of the stock wrapper around it."""
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).to("sim:0")
    wrapper = nn.DataParallel(base)
    x = torch.randn(8, 8)
    with recording() as recorded:
        wrapper(x).pow(2).sum().backward()
    return base, recorded


def summary(recorded):
    """Return the operators and copies of each device, sorted, since threads may reorder them."""
    streams = {}
    for event in recorded.events:
        if isinstance(event, (Operator, Copy)):
            name = event.name if isinstance(event, Operator) else (event.source, event.destination, event.size_bytes)
            streams.setdefault(recorded.streams[event.stream], []).append((name, event.node))
    return {device: sorted(events, key=str) for device, events in streams.items()}


def test_two_runs_of_the_stock_wrapper_are_equal():
    assert summary(step()[1]) == summary(step()[1])


def test_the_stock_wrapper_sends_each_parameter_out_and_each_gradient_back():
    base, recorded = step()
    size = sum(p.numel() for p in base.parameters()) * 4
    sent = {}
    for copy in of(recorded, Copy):
        sent[copy.source, copy.destination] = sent.get((copy.source, copy.destination), 0) + copy.size_bytes
    for device in (1, 2, 3):
        assert sent[None, device] == 2 * 8 * 4, "a chunk of the batch"
        assert sent[0, device] == size + 2 * 2 * 4, "the parameters, and the gradient of the chunk's output"
        assert sent[device, 0] == size + 2 * 2 * 4, "the gradients, and the chunk's output"


def test_a_thread_is_the_lanes_own_or_that_of_the_engine():
    _, recorded = step()
    backward = [event for event in of(recorded, Operator) if event.node is not None]
    forward = [event for event in of(recorded, Operator) if event.name == "aten.addmm.default" and event.node is None]
    assert {(event.thread, event.device) for event in forward} == {(1 + i, i) for i in range(4)}
    of_lanes = {(event.thread, event.device) for event in backward if "AddmmBackward" in event.node}
    assert of_lanes == {(5 + i, i) for i in range(4)}
    # the node that sends the gradients to the base works on all devices, and runs in the thread of one
    assert {copy.thread for copy in of(recorded, Copy) if copy.node == "BroadcastBackward"} == {5}


def test_a_recording_is_read_back_from_its_file(tmp_path):
    _, recorded = step()
    recorded.write(tmp_path / "step.jsonl")
    again = Recording.read(tmp_path / "step.jsonl")
    assert (again.events, again.streams, again.devices) == (recorded.events, recorded.streams, 4)
