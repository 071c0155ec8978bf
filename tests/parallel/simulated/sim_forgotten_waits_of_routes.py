"""Each wait and each `record_stream` of a route is needed: without it the simulator finds a race."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, lanes, routes
from dpbench.parallel import buckets as flat_module
from dpbench.parallel import reduce as flat_sums
from dpbench.parallel.tables import Arrival
from dpbench.simulator import RaceError
from tests.parallel.models import Call, normed
from tests.parallel.simulated.racing import DEVICES, POLICIES, steps, train
from tests.sampling import sampled

TWO_LANES_EACH = ["sim:0", "sim:1", "sim:1", "sim:2", "sim:2", "sim:3"]


def policy(route):
    return replace(POLICIES["small buckets"], route=route)


@pytest.fixture(params=["whole buckets", "pieces"], autouse=True)
def _pieces(request, monkeypatch):
    if request.param == "pieces":
        monkeypatch.setattr(routes, "PIECE_BYTES", 24)


def train_layers(route):
    torch.manual_seed(0)
    base = nn.Sequential(*[nn.Linear(5, 5) for _ in range(6)]).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=policy(route))
    for _ in range(3):
        wrapper(torch.randn(24, 5)).sum().backward()


def write_in_forward(route):
    train(normed, policy(route), lambda x: x, lambda: torch.randn(16, 5), steps=3)


def read_nothing(route):
    base = Call(lambda self, x: x * 1, unused=nn.Linear(20, 20)).to("sim:0")
    steps(DataParallel(base, DEVICES, policy=policy(route)), is_training=False)


def skip_what_is_unchanged(route):
    """Lane 1 gets the weights in one forward and passes them on in the next."""
    base = nn.Linear(20, 20).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=replace(policy(route), skip_unchanged=True))
    with torch.no_grad():
        for batch in (1, 2, 8):
            wrapper(torch.randn(batch, 20))


def delete_and_allocate(route):
    """The wrapper is deleted while weights that no forward reads are passed on; its far streams then allocate."""
    base = Call(lambda self, x: x * 1, unused=nn.Linear(20, 20)).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=policy(route))
    with torch.no_grad():
        wrapper(torch.randn(8, 20))
    behind_the_first = wrapper._replicas.streams.lanes(len(DEVICES), is_overlapped=True)[1:]
    del wrapper
    for lane in behind_the_first:
        lane.compute.synchronize()  # the allocator sees that this stream needs the memory no more
        with torch.sim.stream(lane.far):
            _ = [torch.zeros(count, device=lane.device) for count in (400, 20)]


def pack_the_first_lane_first(route):
    """Of two lanes on a device the engine runs the first one's backward first."""
    calls = []

    def forward(self, x):
        out = self.layer(x)
        calls.append(out)
        if len(calls) % len(TWO_LANES_EACH) in {3, 5}:  # the second lanes of two devices
            out.grad_fn._set_sequence_nr(0)
        return out

    base = Call(forward, layer=nn.Linear(5, 5)).to("sim:0")
    wrapper = DataParallel(base, TWO_LANES_EACH, policy=policy(route))
    for _ in range(2):
        wrapper(torch.randn(24, 5)).sum().backward()


def allocate_behind_the_backward(route, devices=DEVICES):
    """Each lane allocates while its packed gradients are added to and sent."""
    base = normed().to("sim:0")
    wrapper = DataParallel(base, devices, policy=policy(route))
    for _ in range(3):
        wrapper(torch.randn(24, 5)).sum().backward()
        for device in dict.fromkeys(devices):
            _ = [torch.zeros(count, device=device) for count in (4, 20, 100) for _ in range(8)]


def on_far_streams(monkeypatch, module, verb, is_forgotten):
    """Forget calls whose stream belongs to lanes that pass on: `above` if it is one, else `far`."""
    real, new_lanes = getattr(module, verb), lanes.SideStreams._new_lanes
    above, far = [], []

    def note(self, *args):
        made = new_lanes(self, *args)
        above.extend(lane.above for lane in made if lane.parent != 0)
        far.extend(lane.far for lane in made[1:])
        return made

    monkeypatch.setattr(lanes.SideStreams, "_new_lanes", note)
    chosen = above if is_forgotten == "above" else far

    def call(*args):
        stream = args[0] if verb.startswith("wait") else args[1]
        if stream not in chosen:
            real(*args)

    monkeypatch.setattr(module, verb, call)


def forget_what_arrives(monkeypatch):
    def wait_for(stream, package, lane):
        return stream == lane.compute or lanes.wait_event(stream, package.ready)

    monkeypatch.setattr(flat_sums, "_wait_for", wait_for)
    on_far_streams(monkeypatch, flat_sums, "wait_event", "far")


def but_beside(real, place):
    """The function, but not for lanes on their parent's device. The lane is the argument at this place."""

    def call(*args):
        lane = args[place]
        return real(*args) if lane.is_linked or lane.parent == 0 else None

    return call


FORGOTTEN = {
    "a parent's copy has arrived": (train_layers, lambda m: on_far_streams(m, flat_module, "wait_event", "above")),
    "an unchanged copy has arrived": (
        skip_what_is_unchanged,
        lambda m: on_far_streams(m, flat_module, "wait_event", "above"),
    ),
    "a copy was passed on before the next": (
        read_nothing,
        lambda m: on_far_streams(m, flat_module, "wait_event", "far"),
    ),
    "a copy was passed on before a forward writes": (
        write_in_forward,
        lambda m: m.setattr(flat_module, "Arrival", lambda device, events: Arrival(device, events[:1])),
    ),
    "a copy is kept": (delete_and_allocate, lambda m: on_far_streams(m, flat_module, "record_stream", "above")),
    "gradients are packed": (train_layers, lambda m: m.setattr(flat_sums, "_wait_for", lambda *_: None)),
    "gradients have arrived at a lane": (train_layers, forget_what_arrives),
    "received gradients were added": (train_layers, lambda m: m.setattr(flat_sums, "_give_back", lambda *_: None)),
    "packed gradients are kept": (
        allocate_behind_the_backward,
        lambda m: on_far_streams(m, flat_sums, "record_stream", "far"),
    ),
    "gradients of a lane beside are kept": (
        lambda route: allocate_behind_the_backward(route, TWO_LANES_EACH),
        lambda m: m.setattr(flat_sums, "_give_back", but_beside(flat_sums._give_back, 1)),
    ),
    "gradients of a lane beside are packed": (
        pack_the_first_lane_first,
        lambda m: m.setattr(flat_sums, "_wait_for", but_beside(flat_sums._wait_for, 2)),
    ),
}


@pytest.mark.parametrize("name", sampled(FORGOTTEN, 8))
def test_each_wait_of_a_chain_is_needed(name, monkeypatch):
    run, forget = FORGOTTEN[name]
    run("chain")
    forget(monkeypatch)
    with pytest.raises(RaceError):
        run("chain")
