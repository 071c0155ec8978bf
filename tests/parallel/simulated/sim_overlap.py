"""Operations that can overlap, by dependencies alone: the replay knows waits, not speeds."""

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy, replicas
from dpbench.records.recording import Copy, HostCall, HostCallName, Mark, Operator, Wait
from dpbench.simulator import mark, recording
from tests.parallel.models import Call
from tests.parallel.simulated.replay import replay

DEVICES = [f"sim:{i}" for i in range(4)]
LAYERS, WIDTH = 16, 16
LAYER_BYTES = 4 * (WIDTH * WIDTH + WIDTH)
BUCKETS = 8
BUCKET_BYTES = LAYERS // BUCKETS * LAYER_BYTES
POLICY = {"bucket_bytes": BUCKET_BYTES, "first_bucket_bytes": BUCKET_BYTES, "route": "star"}


def stack():
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])


def recorded_step(policy, batches=(16,), make=stack):
    """The events of the last of some steps, forward and backward apart."""
    base = make().to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=policy)
    for batch in batches[:-1]:
        wrapper(torch.randn(batch, WIDTH).to("sim:0")).sum().backward()
    x = torch.randn(batches[-1], WIDTH).to("sim:0")
    base.zero_grad()
    with recording() as recorded:
        loss = wrapper(x).sum()
        mark("backward")
        loss.backward()
    at = next(i for i, event in enumerate(recorded.events) if isinstance(event, Mark))
    return recorded.events, recorded.events[:at], recorded.events[at:]


def operators(events, name, device):
    return [e for e in events if isinstance(e, Operator) and e.name.startswith(name) and e.device == device]


def gradient_copies(events):
    """Copies of gradients to the base's device by the broadcast's autograd nodes."""
    nodes = [e for e in events if isinstance(e, Copy) and e.destination == 0 and e.node]
    return [e for e in nodes if "SumNode" in e.node]


@pytest.mark.parametrize("dispatch", ["sequence", "threads"])
def test_the_first_layer_waits_for_the_first_bucket_only(dispatch):
    _, forward, _ = recorded_step(Policy(**POLICY, dispatch=dispatch), (16, 16))
    packs = [e.id for e in operators(forward, "aten._foreach_copy_", 0)]
    copies = {
        d: [e.id for e in forward if isinstance(e, Copy) and (e.source, e.destination) == (0, d)] for d in (1, 2, 3)
    }
    assert len(packs) == BUCKETS
    per_bucket = LAYERS // BUCKETS
    slow = packs[1]  # the first layer must run even if the second bucket is packed very late
    times = replay(forward, {slow: 1000.0})
    for device in range(4):
        layers = operators(forward, "aten.addmm", device)
        assert len(layers) == LAYERS
        ends = [times[e.id][1] for e in layers]
        assert max(ends[:per_bucket]) < 1000 <= min(ends[per_bucket:])
    assert all(len(of_device) == BUCKETS + 1 for of_device in copies.values())  # and the chunk of the batch


def test_the_first_lane_waits_until_its_weights_are_packed_and_not_for_their_copies():
    _, forward, _ = recorded_step(Policy(**POLICY, dispatch="sequence"))
    last_copies = {e.destination: e.id for e in forward if isinstance(e, Copy) and e.source == 0}
    times = replay(forward, dict.fromkeys(last_copies.values(), 1000.0))
    for device in range(4):
        last_layer = operators(forward, "aten.addmm", device)[-1]
        assert (times[last_layer.id][1] < 1000) is (device == 0)


@pytest.mark.parametrize("overlap", [True, False])
def test_without_the_technique_the_first_layer_waits_for_all(overlap):
    _, forward, _ = recorded_step(Policy(**POLICY, dispatch="sequence", overlap_broadcast=overlap))
    last_pack = operators(forward, "aten._foreach_copy_", 0)[-1].id
    times = replay(forward, {last_pack: 1000.0})
    first_ends = [times[operators(forward, "aten.addmm", device)[0].id][1] for device in range(4)]
    assert (max(first_ends) < 1000) is overlap


def reader_of_anothers_weight(self, x):
    return torch.nn.functional.linear(self.first(x), self.last.weight)


def test_a_weight_read_by_another_module_is_waited_for_there():
    def make():
        return Call(
            reader_of_anothers_weight,
            first=nn.Linear(WIDTH, WIDTH),
            between=nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(6)]),
            last=nn.Linear(WIDTH, WIDTH),
        )

    policy = Policy(bucket_bytes=LAYER_BYTES, first_bucket_bytes=LAYER_BYTES, dispatch="sequence")
    _, forward, _ = recorded_step(policy, make=make)
    last_pack = operators(forward, "aten._foreach_copy_", 0)[-1].id
    times = replay(forward, {last_pack: 1000.0})
    for device in range(4):
        first = operators(forward, "aten.addmm", device)[0]
        (reader,) = operators(forward, "aten.mm", device)
        assert times[first.id][1] < 1000 <= times[reader.id][0]


def ready_share(backward, lane_share):
    """The share of reduced bytes with all lanes' gradients when `lane_share` of work is done."""
    work = {
        d: [e.id for e in backward if isinstance(e, Operator) and e.node and "Addmm" in e.node and e.device == d]
        for d in range(4)
    }
    done = {d: set(ids[: round(len(ids) * lane_share)]) for d, ids in work.items()}
    all_work = {i for ids in work.values() for i in ids}
    known = {e.id: e for e in backward if isinstance(e, Operator | Copy)}

    def needs(event_id, seen):
        if event_id in seen or event_id not in known:
            return set()
        seen.add(event_id)
        own = {event_id} & all_work
        return own or set().union(*[needs(i, seen) for i in known[event_id].inputs])

    reduces = gradient_copies(backward)
    total = sum(e.size_bytes for e in reduces)
    return sum(e.size_bytes for e in reduces if needs(e.id, set()) <= done[e.source]) / total


@pytest.mark.parametrize("dispatch", ["sequence", "threads"])
@pytest.mark.parametrize("batches", [(16,), (5, 2, 16)])
def test_buckets_are_reduced_as_their_layers_are_ready(dispatch, batches):
    events, _, backward = recorded_step(Policy(**POLICY, dispatch=dispatch), batches)
    assert ready_share(backward, 1.0) == 1
    # Gradients of equal layers come one after the other, so their share is at most the share of the work.
    # One bucket may lack its last gradient.
    for lane_share in (0.5, 0.75):
        assert ready_share(backward, lane_share) >= lane_share - 1 / BUCKETS
    times = replay(events)
    last_layer = max(
        times[e.id][1] for e in backward if isinstance(e, Operator) and e.id in times and e.node and "Addmm" in e.node
    )
    reduces = gradient_copies(backward)
    early = sum(e.size_bytes for e in reduces if times[e.id][1] < last_layer)
    assert early >= 0.7 * sum(e.size_bytes for e in reduces)
    last_layer = max(e.id for device in range(4) for e in operators(backward, "aten.mm", device))
    assert sum(e.size_bytes for e in reduces if e.id < last_layer) >= 0.7 * sum(e.size_bytes for e in reduces)


def test_the_reduction_does_not_hold_up_the_bases_own_backward():
    events, _, backward = recorded_step(Policy(**POLICY, dispatch="sequence"))
    adds = [e.id for e in operators(backward, "aten.add_.", 0)]
    times = replay(events, dict.fromkeys(adds, 1000.0))
    layers = [times[e.id][1] for e in operators(backward, "aten.mm", 0) if e.node and "Addmm" in e.node]
    assert max(layers) < 1000


@pytest.mark.parametrize("overlap", [True, False])
def test_gradients_travel_beside_the_compute_only_with_the_technique(overlap):
    policy = Policy(**POLICY, dispatch="sequence", overlap_reduce=overlap, overlap_broadcast=not overlap)
    _, _, backward = recorded_step(policy)
    computing = {e.stream for device in range(4) for e in operators(backward, "aten.mm", device)}
    sending = {e.stream for e in backward if isinstance(e, Copy) and e.destination == 0}
    assert computing.isdisjoint(sending) is overlap


@pytest.mark.parametrize("overlap", [True, False])
def test_outputs_wait_for_no_other_lanes_nor_do_their_gradients(overlap):
    policy = Policy(**POLICY, dispatch="sequence", overlap_copies=overlap, overlap_broadcast=not overlap)
    _, forward, backward = recorded_step(policy)
    outputs = {e.source: e.id for e in forward if isinstance(e, Copy) and e.destination == 0}
    gradients = {e.destination: e.id for e in backward if isinstance(e, Copy) and e.source == 0}
    for events, copies in ((forward, outputs), (backward, gradients)):
        times = replay(events, {copies[1]: 1000.0})
        assert (times[copies[2]][1] < 1000) is overlap


def test_the_gradients_of_one_lane_do_not_wait_for_those_of_another():
    _, _, backward = recorded_step(Policy(**POLICY, dispatch="sequence"))
    copies = {
        d: [e.id for e in backward if isinstance(e, Copy) and (e.source, e.destination) == (d, 0)] for d in (1, 2)
    }
    times = replay(backward, {copies[1][0]: 1000.0})
    assert len(copies[2]) == BUCKETS
    assert times[copies[2][0]][1] < 1000


@pytest.mark.parametrize("overlap", [True, False])
def test_the_next_batch_leaves_the_host_before_the_last_step_is_over(overlap):
    base = stack().to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=Policy(**POLICY, dispatch="sequence", overlap_copies=overlap))
    wrapper(torch.randn(16, WIDTH)).sum().backward()
    with recording() as recorded:
        for _ in range(2):
            wrapper(torch.randn(16, WIDTH)).sum().backward()
    batches = {e.destination: e.id for e in recorded.events if isinstance(e, Copy) and e.source is None}
    first_layers = {d: operators(recorded.events, "aten.addmm", d)[0].id for d in range(4)}
    times = replay(recorded.events, dict.fromkeys(first_layers.values(), 1000.0))
    assert {times[copy][1] < 1000 for copy in batches.values()} == {overlap}


def test_without_the_technique_the_reduction_runs_last():
    _, _, backward = recorded_step(Policy(**POLICY, dispatch="sequence", overlap_reduce=False))
    last_layer = max(e.id for e in operators(backward, "aten.mm", 0))
    assert min(e.id for e in operators(backward, "aten.add_.", 0)) > last_layer


@pytest.mark.parametrize(
    ("devices", "policy", "streams"),
    [
        (DEVICES[:1] * 4, {}, 1),
        (DEVICES[:1] * 4, POLICY, 1),
        (DEVICES, {"route": "star"}, 11),  # 4 compute, 4 near, 3 far
        (DEVICES, {"route": "chain"}, 13),  # and 2 above
    ],
    ids=["one bucket", "many buckets", "a star", "a chain"],
)
def test_lanes_on_one_device_use_no_side_streams(devices, policy, streams):
    """They run one after the other anyway. torch's engine makes an event for each gradient that changes streams."""
    base, x = stack().to("sim:0"), torch.randn(16, WIDTH).to("sim:0")
    wrapper = DataParallel(base, devices, policy=Policy(**policy, dispatch="sequence"))
    for _ in range(2):
        base.zero_grad()
        with recording() as recorded:
            wrapper(x).sum().backward()
    assert len({event.stream for event in recorded.events if isinstance(event, Operator | Copy)}) == streams
    assert any(isinstance(event, Wait) for event in recorded.events) == (streams > 1)


@pytest.mark.filterwarnings("ignore:.* a forward ran eagerly")  # simulated devices have no graphs
@pytest.mark.parametrize(("items", "graphs", "is_small"), [(4, True, True), (8, True, False), (4, False, False)])
def test_with_graphs_small_chunks_and_outputs_go_on_the_compute_streams(items, graphs, is_small, monkeypatch):
    monkeypatch.setattr(replicas, "SMALL_BYTES", 2 * 8 * 4)  # two items of eight floats
    wrapper = DataParallel(nn.ReLU(), ["sim:0", "sim:1"], policy=Policy(graphs=graphs))
    x = torch.randn(items, 8, device="sim:0").requires_grad_()
    with recording() as recorded:
        wrapper(x).sum().backward()
    chunk, _, grad, *_ = [copy.stream == copy.source for copy in recorded.events if isinstance(copy, Copy)]
    assert (chunk, grad) == (is_small, is_small)
    waits = [e for e in recorded.events if isinstance(e, HostCall) and e.name is HostCallName.STREAM_WAIT]
    assert len(waits) == (3 if is_small else 13)  # three are for weights, chunk, output and gradient have the others
