"""The stand-in itself: what waits, what does not, what is counted, and which order of work is a race."""

import ctypes
import time
from contextlib import nullcontext

import pytest
import torch

from tests.cuda_stand_in import control

LAG_S = 0.2
HERE = "cuda:0"


@pytest.fixture
def side():
    return torch.cuda.Stream(0)


@pytest.fixture
def x():
    made = torch.ones(1000, device=HERE)
    torch.cuda.synchronize()
    return made


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def test_the_host_does_not_wait_for_a_kernel_and_waits_for_its_result(x):
    with control.lagging({0: LAG_S}):
        assert seconds(lambda: x + 1) < LAG_S / 2
        torch.cuda.synchronize()
        assert seconds((x + 1).cpu) > LAG_S


def test_a_lag_of_one_stream_leaves_the_others_alone(x, side):
    control.lag_stream(side, LAG_S)
    with torch.cuda.stream(side):
        slow = x + 1
    assert seconds((x + 1).cpu) < LAG_S / 2
    assert not side.query()
    torch.cuda.current_stream().wait_stream(side)
    assert slow.sum().item() == 2000
    control.lag_stream(side, 0)


@pytest.mark.parametrize("is_pinned", [False, True], ids=["pageable", "pinned"])
def test_a_copy_from_the_host_waits_for_the_stream_if_it_is_pageable(is_pinned, x):
    source = torch.zeros(1000)
    source = source.pin_memory() if is_pinned else source
    torch.cuda._sleep(int(LAG_S * 2e9))
    assert (seconds(lambda: x.copy_(source, non_blocking=True)) < LAG_S / 2) is is_pinned


def test_an_event_measures_what_lies_between():
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(int(LAG_S * 2e9))
    end.record()
    assert not end.query()
    end.synchronize()
    assert start.elapsed_time(end) > LAG_S * 900


def counted(work):
    before = control.counts()
    work()
    return {name: value - before[name] for name, value in control.counts().items() if value != before[name]}


def test_what_the_host_does_is_counted(x, side):
    assert counted(lambda: x.add_(1)) == {"works": 1}
    wait = {"events_recorded": 1, "programs_events": 1, "waits": 1, "programs_waits": 1}
    assert counted(lambda: side.wait_stream(torch.cuda.current_stream())) == wait
    assert counted(lambda: x.record_stream(side)) == {"record_streams": 1}
    assert counted(torch.cuda.current_stream().synchronize) == {"host_waits": 1}
    assert counted(lambda: x.copy_(torch.zeros(1000)))["pageable_copies"] == 1


def read_late(x, side):
    with torch.cuda.stream(side):
        x * 2
    return "read-write race: aten::add_ on cuda:0 default stream"


def write_late(x, side):
    with torch.cuda.stream(side):
        x.mul_(2)
    return "write-write race: aten::add_ on cuda:0 default stream"


@pytest.mark.races
@pytest.mark.parametrize("earlier", [read_late, write_late])
def test_work_in_two_streams_without_a_wait_is_a_race_though_the_first_has_long_ended(earlier, x, side):
    text = earlier(x, side)
    time.sleep(0.1)
    with pytest.raises(RuntimeError, match=text) as caught:
        x.add_(1)
    assert f"{__file__.rsplit('/', 1)[1]}:" in str(caught.value)
    assert len(control.take_races()) == 1
    torch.cuda.current_stream().wait_stream(side)
    x.add_(1)
    assert control.take_races() == []


@pytest.mark.parametrize("order", ["event", "host", "query"])
def test_each_kind_of_wait_orders_work(order, x, side):
    read_late(x, side)
    event = side.record_event()
    if order == "event":
        torch.cuda.current_stream().wait_event(event)
    elif order == "host":
        event.synchronize()
    else:
        while not event.query():
            time.sleep(0.001)
    x.add_(1)


def test_disjoint_columns_are_no_race(side):
    matrix = torch.zeros(64, 8, device=HERE)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        matrix[:, :4].add_(1)
    matrix[:, 4:].add_(1)
    torch.cuda.current_stream().wait_stream(side)
    assert matrix.sum().item() == 64 * 8


@pytest.mark.races
@pytest.mark.parametrize("is_recorded", [False, True], ids=["forgotten", "recorded"])
def test_memory_that_another_stream_reads_needs_record_stream(is_recorded, side):
    with torch.cuda.stream(side):
        made = torch.ones(1000, device=HERE)
    current = torch.cuda.current_stream()
    current.wait_stream(side)
    with control.lagging({0: 0.02}):
        made * 3
        if is_recorded:
            made.record_stream(current)
        del made
        outcome = nullcontext() if is_recorded else pytest.raises(RuntimeError, match="record_stream must keep")
        with torch.cuda.stream(side), outcome:
            torch.zeros(1000, device=HERE)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.zeros(1000, device=HERE)  # now the block is free
    assert bool(control.take_races()) is not is_recorded


def test_a_kernel_that_the_stand_in_lacks_is_named():
    runtime = ctypes.CDLL("libcudart.so.13")
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    error = runtime.__getattr__("cudaLaunchKernel")(None, *[None] * 8)
    assert runtime.cudaGetErrorString(error) == b"the CUDA stand-in has no kernel an unknown kernel"
    runtime.cudaGetLastError()


def test_an_error_of_a_task_is_raised_by_the_next_wait(x):
    x[torch.tensor([5000], device=HERE)]
    with pytest.raises(RuntimeError, match="index 5000 is out of bounds"):
        torch.cuda.synchronize()


def test_seeds_and_saved_states_repeat_the_numbers():
    torch.manual_seed(3)
    state = torch.cuda.get_rng_state(0)
    drawn = torch.randn(5, device=HERE)
    more = torch.randn(5, device=HERE)
    assert not torch.equal(drawn, more)
    torch.cuda.set_rng_state(state, 0)
    assert torch.equal(torch.randn(5, device=HERE), drawn)
    torch.manual_seed(3)
    assert torch.equal(torch.randn(5, device=HERE), drawn)


def test_a_deleted_tensors_memory_is_reused_and_counted():
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    made = torch.empty(4 << 20, device=HERE)
    assert torch.cuda.memory_reserved() > before
    address = made.data_ptr()
    del made
    assert torch.empty(4 << 20, device=HERE).data_ptr() == address
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before


def test_too_large_a_request_is_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 40, dtype=torch.uint8, device=HERE)
