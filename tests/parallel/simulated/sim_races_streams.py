"""No race on streams that the caller or a forward chooses, or that threads share."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy, lanes
from tests.parallel.models import Call, normed
from tests.parallel.simulated.racing import DEVICES, POLICIES, SMALL, reads_without_output, train, train_sparsely


@pytest.mark.parametrize("policy", ["default", "small buckets", "small buckets, threads", "no overlap"])
def test_a_callers_own_streams_have_no_race(policy):
    streams = [torch.sim.Stream(device) for device in DEVICES]
    for device, stream in zip(DEVICES, streams, strict=True):
        stream.wait_stream(torch.sim.current_stream(device))
    with streams[3], streams[2], streams[1], streams[0]:
        train(normed, POLICIES[policy], lambda x: x.to("sim:0"), lambda: torch.randn(16, 5))


@pytest.mark.parametrize("policy", ["default", "no overlap"])
def test_sparse_gradients_on_a_callers_own_streams_have_no_race(policy):
    streams = [torch.sim.Stream(device) for device in DEVICES]
    for device, stream in zip(DEVICES, streams, strict=True):
        stream.wait_stream(torch.sim.current_stream(device))
    with streams[3], streams[2], streams[1], streams[0]:
        train_sparsely(POLICIES[policy])


@pytest.mark.parametrize("policy", ["default", "no overlap"])
def test_a_sparse_gradient_is_kept_until_it_is_sent(policy):
    wrapper = DataParallel(nn.Embedding(64, 8, sparse=True).to("sim:0"), DEVICES, policy=POLICIES[policy])
    for _ in range(2):
        wrapper(torch.randint(64, (4 * 64,))).sum().backward()
        _ = [torch.zeros(64, 8, device=device) for device in DEVICES[1:] for _ in range(4)]


def test_changing_streams_between_steps_has_no_race():
    wrapper = train(normed, POLICIES["small buckets"], lambda x: x, lambda: torch.randn(16, 5))
    for _ in range(3):
        stream = torch.sim.Stream("sim:1")
        stream.wait_stream(torch.sim.current_stream("sim:1"))
        with stream:
            wrapper(torch.randn(16, 5)).sum().backward()
        torch.sim.current_stream("sim:1").wait_stream(stream)


@pytest.mark.parametrize("policy", ["default", "small buckets", "no overlap"])
@pytest.mark.parametrize("devices", [DEVICES[:2], DEVICES[:1] * 2], ids=["two devices", "one device"])
def test_the_memory_of_a_deleted_wrapper_is_kept_for_all_streams_that_use_it(devices, policy):
    """It was allocated in the first forward, on another stream than the second forward's."""
    base, x = reads_without_output(), torch.randn(8, 20).to("sim:0")
    wrapper = DataParallel(base, devices, policy=POLICIES[policy])
    here, other = torch.sim.current_stream("sim:0"), torch.sim.Stream("sim:0")
    with torch.no_grad():
        wrapper(x)
        other.wait_stream(here)
        with other:
            wrapper(x)
        del wrapper
        _ = [torch.zeros(count, device="sim:0") for count in (420, 400, 20)]
    here.wait_stream(other)


def test_a_staging_buffer_is_kept_for_the_streams_that_read_it_after_its_wrapper():
    wrapper = DataParallel(reads_without_output(), DEVICES)
    hub = wrapper._replicas.streams.lanes(1, is_overlapped=True)[0].near
    with torch.no_grad():
        wrapper(torch.randn(8, 20))
    del wrapper
    with torch.sim.stream(hub):
        torch.zeros(420, device="sim:0")


@pytest.mark.parametrize("part", [torch.Tensor._indices, torch.Tensor._values])
def test_a_sparse_tensor_is_kept_with_all_its_parts(part):
    here, other = torch.sim.current_stream("sim:0"), torch.sim.Stream("sim:0")
    with other:
        table = torch.eye(64).to_sparse().to("sim:0")
    here.wait_stream(other)
    part(table).add(1)
    lanes.record_stream(table, here)
    del table
    with other:
        _ = [torch.zeros(64, dtype=dtype, device="sim:0") for dtype in (torch.float32, torch.int64) for _ in range(3)]


class on_another_stream:
    """Device 1 has another current stream, which only the wrapper orders with the first."""

    def __enter__(self):
        self._stream = torch.sim.stream(torch.sim.Stream("sim:1"))
        self._stream.__enter__()

    def __exit__(self, *error):
        self._stream.__exit__(*error)


@pytest.mark.parametrize("is_overlapped", [True, False])
def test_unchanged_weights_may_be_read_on_another_stream(is_overlapped):
    base = nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 20)).to("sim:0")
    policy = Policy(**SMALL, skip_unchanged=True, overlap_broadcast=is_overlapped)
    wrapper = DataParallel(base, DEVICES, "sim:2", policy=policy)
    wrapper(torch.randn(8, 20))
    with on_another_stream():
        wrapper(torch.randn(8, 20))


@pytest.mark.parametrize("skip_unchanged", [True, False])
def test_weights_read_on_another_stream_are_written_after(skip_unchanged):
    policy = Policy(**SMALL, skip_unchanged=skip_unchanged)
    wrapper = DataParallel(base := reads_without_output(), DEVICES, policy=policy)
    for _ in range(3):
        with torch.no_grad():
            wrapper(torch.randn(8, 20))
            with on_another_stream():
                wrapper(torch.randn(8, 20))
            for parameter in base.parameters():
                parameter.add_(1)


def test_threads_that_begin_together_get_the_same_side_streams(monkeypatch):
    """Otherwise the thread that began first would settle on the other's streams."""
    new_streams = lanes._new_streams
    monkeypatch.setattr(lanes, "_new_streams", lambda *devices: time.sleep(0.01) or new_streams(*devices))
    streams = lanes.SideStreams([torch.device(device) for device in DEVICES])
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: streams.lanes(len(DEVICES), is_overlapped=True), range(2))
    assert [lane.near for lane in first] == [lane.near for lane in second]


def test_a_side_stream_inside_forward_waits_for_the_weights_it_reads():
    def forward(self, x):
        side = torch.sim.Stream(x.device)
        side.wait_stream(torch.sim.current_stream(x.device))
        with side:
            y = self.second(x)
        x.record_stream(side)
        z = self.first(x)
        torch.sim.current_stream(x.device).wait_stream(side)
        y.record_stream(torch.sim.current_stream(x.device))
        return y + z

    base = Call(forward, first=nn.Linear(20, 20), second=nn.Linear(20, 20)).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=Policy(**SMALL))
    for _ in range(2):
        wrapper(torch.randn(8, 20))
