"""A missing wait raises RaceError, and the same code with the wait passes."""

import pytest
import torch

from dpbench.simulator import RaceError

sim = torch.get_device_module("sim")


@pytest.fixture
def side():
    return sim.Stream(0)


@pytest.fixture
def x():
    return torch.ones(1000, device="sim:0")


def test_a_read_must_wait_for_the_write(x, side):
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        y = x * 2
    with pytest.raises(
        RaceError, match=r"write-read race: aten.sum.* on sim:0 default stream at .*sim_race_errors.py:\d+ is not"
    ):
        y.sum()
    sim.current_stream(0).wait_stream(side)
    assert y.sum().item() == 2000


def test_the_race_names_both_places(x, side):
    with sim.stream(side), pytest.raises(RaceError) as caught:
        x.sum()
    earlier, later = "aten.ones.default on sim:0 default stream", f"aten.sum.default on sim:0 stream {side.stream_id}"
    assert later in str(caught.value)
    assert earlier in str(caught.value) or "aten.fill_" in str(caught.value)
    assert str(caught.value).count("sim_race_errors.py:") == 2


@pytest.mark.parametrize(
    ("first", "then", "race"),
    [
        (lambda x: x.sum(), lambda x: x.add_(1), "read-write race: aten.add_"),
        (lambda x: x.zero_(), lambda x: x.fill_(1.0), "write-write race: aten.fill_"),
    ],
)
def test_a_write_must_wait_for_the_read_and_the_write(x, side, first, then, race):
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        first(x)
    with pytest.raises(RaceError, match=race):
        then(x)
    sim.current_stream(0).wait_stream(side)
    then(x)


def test_parts_of_one_buffer_may_be_used_at_once(x, side):
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        x[:500].zero_()
    x[500:].zero_()
    with pytest.raises(RaceError, match="write-write"):
        x[499:501].zero_()


def test_an_event_covers_the_work_before_it(x, side):
    main = sim.current_stream(0)
    side.wait_stream(main)
    with sim.stream(side):
        y = x * 2
        ready = sim.Event()
        ready.record()
        z = x * 3
    ready.wait(main)
    y.sum()
    with pytest.raises(RaceError, match="write-read"):
        z.sum()
    main.wait_event(side.record_event())
    z.sum()


@pytest.mark.parametrize("wait", [lambda side: side.synchronize(), lambda side: sim.synchronize(0)])
def test_a_wait_of_the_host_is_enough(x, side, wait):
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        y = x * 2
    wait(side)
    y.sum()


@pytest.mark.parametrize(
    "ask",
    [
        lambda y: y.sum().item(),
        lambda y: y.cpu(),
        lambda y: y.to("cpu", non_blocking=True),
        lambda y: y.nonzero(),
        lambda y: torch.equal(y, y),
        lambda y: y[y > 0],
    ],
)
def test_the_host_waits_for_values_that_it_reads(x, side, ask):
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        y = x * 2
        ask(y)
    y.sum()


def test_statistics_of_batch_norm_are_written_in_training_only(side):
    norm = torch.nn.BatchNorm1d(4).to("sim:0")
    values = torch.ones(8, 4, device="sim:0")
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        norm.eval()(values)
    norm.running_mean.sum()
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        norm.train()(values)
    with pytest.raises(RaceError, match="write-read"):
        norm.running_mean.sum()


def test_races_are_found_in_the_new_memory_after_data_is_set(x, side):
    other = torch.zeros(1000, device="sim:0")
    x.sum()
    x.data = other
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        other.fill_(1)
    with pytest.raises(RaceError, match="write-read"):
        x.sum()


def test_a_freed_block_in_use_on_another_stream_is_caught(x, side):
    side.wait_stream(sim.current_stream(0))
    y = x * 2
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        y.sum()
    del y
    with pytest.raises(RaceError, match=r"read-write race: .*record_stream"):
        x * 3


@pytest.mark.parametrize("count", [1, 10_000])
def test_an_allocation_that_happens_to_get_another_block_is_a_race_too(x, side, count):
    y = x * 2
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        y.add_(1)
    del y
    with pytest.raises(
        RaceError, match=r"write-write race: an allocation on sim:0 default .* of aten.add_.* on sim:0 st"
    ):
        torch.empty(count, device="sim:0")
    torch.empty(1 << 20, device="sim:0")  # from the pool of large blocks
    with sim.stream(side):
        torch.empty(count, device="sim:0")
    sim.current_stream(0).wait_stream(side)
    torch.empty(count, device="sim:0")


def test_record_stream_keeps_the_block(x, side):
    y = x * 2
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        y.sum()
    y.record_stream(side)
    address = y.data_ptr()
    del y
    z = x * 3
    assert z.data_ptr() != address
    sim.current_stream(0).wait_stream(side)
    assert (x * 4).data_ptr() == address


def test_record_stream_covers_what_its_stream_has_waited_for_before_the_free(x, side):
    recorded = sim.Stream(0)
    for is_in_time in (True, False):
        y = x * 2
        side.wait_stream(sim.current_stream(0))
        with sim.stream(side):
            y.sum()
        y.record_stream(recorded)
        if is_in_time:
            recorded.wait_stream(side)
            del y
            x * 3
    del y
    recorded.wait_stream(side)
    with pytest.raises(RaceError, match=r"read-write race: an allocation on .* of aten.sum.* on sim:0 st"):
        x * 3


def test_a_copy_between_devices_is_ordered_on_both_current_streams(x):
    y = x.to("sim:1", non_blocking=True)
    y.add_(1)
    x.add_(1)
    assert y.sum().item() == 2000


def test_a_copy_to_a_side_stream_needs_a_wait(x):
    side = sim.Stream(1)
    with sim.stream(side):
        y = x.to("sim:1", non_blocking=True)
    with pytest.raises(RaceError, match=r"write-read race: .* on sim:1 default stream"):
        y.sum()
    sim.current_stream(1).wait_stream(side)
    y.sum()


def test_a_copy_from_the_host_that_does_not_block_needs_a_wait(side):
    with sim.stream(side):
        y = torch.ones(10).to("sim:0", non_blocking=True)
    with pytest.raises(RaceError, match="write-read"):
        y.sum()
    with sim.stream(side):
        z = torch.ones(10).to("sim:0")
    z.sum()


def test_a_worker_thread_begins_on_the_default_streams(x, side):
    import threading

    side.wait_stream(sim.current_stream(0))
    seen = []
    with sim.stream(side):
        thread = threading.Thread(target=lambda: seen.append(sim.current_stream(0)))
        thread.start()
        thread.join()
    assert seen == [sim.default_stream(0)]


def test_nested_streams_are_restored(side):
    other = sim.Stream(1)
    main = sim.current_stream(0)
    with side:
        assert (sim.current_device(), sim.current_stream(0)) == (0, side)
        with sim.stream(other), side:
            assert sim.current_stream(1) == other
        assert (sim.current_device(), sim.current_stream(0)) == (0, side)
    assert sim.current_stream(0) == main
    assert sim.current_stream(1) == sim.default_stream(1)
    assert torch.accelerator.current_stream(0) == main
