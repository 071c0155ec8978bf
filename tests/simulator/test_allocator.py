"""The allocator returns the blocks that the CUDA caching allocator would return."""

import random
from itertools import pairwise

import pytest

from dpbench.simulator.memory.allocator import HELD_LAUNCHES, Allocator
from dpbench.simulator.memory.races import Launch, RaceError
from dpbench.simulator.streams import StreamOrder

MIB = 1 << 20


@pytest.fixture
def order():
    return StreamOrder()


@pytest.fixture
def allocator(order):
    return Allocator(1 << 40, order)


def test_sizes_are_rounded_up_to_512_bytes(allocator):
    block = allocator.allocate(1, stream=0)
    assert block.size == 512
    assert allocator.allocate(513, stream=0).size == 1024
    assert allocator.allocated_bytes == 1536


def test_a_freed_block_is_used_again_on_its_own_stream_only(allocator):
    block = allocator.allocate(1000, stream=0)
    address = block.address
    allocator.free(block)
    assert allocator.allocate(1000, stream=1).address != address
    assert allocator.allocate(1000, stream=0).address == address


def test_a_smaller_request_takes_a_part_and_the_parts_merge_again(allocator):
    block = allocator.allocate(4 * 512, stream=0)
    keep = allocator.allocate(512, stream=0)
    address = block.address
    allocator.free(block)
    small = allocator.allocate(512, stream=0)
    assert small.address == address
    allocator.free(small)
    assert allocator.allocate(4 * 512, stream=0).address == address
    assert keep.address == address + 4 * 512


@pytest.mark.parametrize(
    ("size", "reserved"),
    [(1, 2 * MIB), (MIB, 2 * MIB), (MIB + 1, 20 * MIB), (10 * MIB, 10 * MIB), (11 * MIB, 12 * MIB)],
)
def test_segments_have_the_sizes_of_cuda(allocator, size, reserved):
    allocator.allocate(size, stream=0)
    assert allocator.reserved_bytes == reserved


def test_a_recorded_block_is_held_until_the_other_stream_is_done(allocator, order):
    block = allocator.allocate(512, stream=0)
    address = block.address
    order.launch(1, 1)
    block.other_streams.add(1)
    allocator.free(block)
    assert allocator.allocate(512, stream=0).address != address
    order.launch(1, 2)  # enqueued after the free, so the block does not wait for it
    order.wait(0, {1: 1})
    assert allocator.allocate(512, stream=0).address == address


def test_a_recorded_block_is_free_after_the_host_waited(allocator, order):
    block = allocator.allocate(512, stream=0)
    address = block.address
    order.launch(1, 1)
    block.other_streams.add(1)
    allocator.free(block)
    order.host_wait(order.now(1))
    assert allocator.allocate(512, stream=0).address == address


def test_a_recorded_block_comes_back_at_once_if_the_wait_was_before_the_free(allocator, order):
    held, block = (allocator.allocate(512, stream=0) for _ in range(2))
    address = block.address
    order.launch(1, 1)
    order.launch(2, 2)
    order.wait(0, order.now(1))
    held.other_streams.add(2)
    allocator.free(held)
    allocator.allocate(512, stream=0)
    block.other_streams.add(1)
    allocator.free(block)
    assert allocator.allocate(512, stream=0).address == address


def use(block, order, stream, tick):
    order.launch(stream, tick)
    launch = Launch("op", stream, f"stream {stream}", tick, "file.py:1")
    block.shadow.read(block.region, launch)
    return launch


def test_a_use_of_a_freed_block_is_known_until_its_stream_waits(allocator, order):
    block, other = (allocator.allocate(512, stream=0) for _ in range(2))
    launch = use(block, order, 1, tick=1)
    use(block, order, 0, tick=2)
    use(other, order, 1, tick=3)
    assert allocator.use_after_free(512, stream=0) is None
    allocator.free(block)
    assert allocator.use_after_free(MIB, stream=0) == (launch, False)
    assert allocator.use_after_free(MIB + 1, stream=0) is None  # the large pool
    assert allocator.use_after_free(512, stream=1) is None
    order.wait(0, {1: 1})
    assert allocator.use_after_free(512, stream=0) is None


@pytest.mark.parametrize("recorded", [{1}, {2}, {1, 2}])
def test_a_recorded_block_is_in_use_only_if_another_stream_was_forgotten(allocator, order, recorded):
    block = allocator.allocate(512, stream=0)
    launch = use(block, order, 1, tick=1)
    order.launch(2, 2)
    block.other_streams |= recorded
    allocator.free(block)
    expected = None if 1 in recorded else (launch, False)
    assert allocator.use_after_free(512, stream=0) == expected  # CUDA may already know that stream 2 is done
    order.wait(0, order.now(2))
    assert allocator.use_after_free(512, stream=0) == expected
    order.wait(0, order.now(1))
    assert allocator.use_after_free(512, stream=0) is None


def test_a_recorded_block_is_held_for_work_that_the_recorded_stream_has_waited_for(allocator, order):
    """Stream 1 uses the block, and stream 2 waits for it: no race, though stream 2 launches nothing after the wait."""
    block = allocator.allocate(512, stream=0)
    address = block.address
    order.launch(2, 1)
    order.wait(0, order.now(2))
    use(block, order, 1, tick=2)
    order.wait(2, order.now(1))
    block.other_streams.add(2)
    allocator.free(block)
    assert allocator.use_after_free(512, stream=0) is None
    assert allocator.allocate(512, stream=0).address != address
    order.wait(0, order.now(2))
    assert allocator.use_after_free(512, stream=0) is None
    assert allocator.allocate(512, stream=0).address == address


def write(block, order, stream, tick):
    order.launch(stream, tick)
    block.shadow.write(block.region, Launch("op", stream, f"stream {stream}", tick, "file.py:1"))


def test_a_recorded_block_comes_back_with_time_and_only_its_recorded_uses_are_over(allocator, order):
    block, neighbour = (allocator.allocate(512, stream=0) for _ in range(2))
    address = block.address
    use(neighbour, order, 1, tick=1)
    use(block, order, 1, tick=2)
    forgotten = use(block, order, 2, tick=3)
    block.other_streams.add(1)
    allocator.free(block)
    for tick in range(4, HELD_LAUNCHES + 3):
        order.launch(3, tick)
    assert allocator.allocate(512, stream=0).address != address
    order.launch(3, HELD_LAUNCHES + 3)
    assert allocator.allocate(512, stream=1).address != address
    assert allocator.use_after_free(512, stream=0) == (forgotten, False)
    again = allocator.allocate(512, stream=0)
    assert again.address == address
    assert neighbour.shadow.unordered(neighbour.region, stream=0), "a live block's uses are not over"
    with pytest.raises(RaceError, match="stream 0 must wait for stream 2"):
        write(again, order, 0, HELD_LAUNCHES + 4)
    order.wait(0, {2: 3})
    write(again, order, 0, HELD_LAUNCHES + 5)


def test_the_peak_is_the_most_that_was_allocated_at_once(allocator):
    blocks = [allocator.allocate(512, stream=0) for _ in range(3)]
    for block in blocks:
        allocator.free(block)
    allocator.allocate(512, stream=0)
    assert (allocator.allocated_bytes, allocator.peak_bytes) == (512, 1536)


@pytest.mark.parametrize("seed", range(5))
def test_live_blocks_never_overlap_and_all_memory_comes_back(allocator, seed):
    rng = random.Random(seed)
    live = []
    for _ in range(400):
        if live and rng.random() < 0.45:
            allocator.free(live.pop(rng.randrange(len(live))))
        else:
            live.append(allocator.allocate(rng.choice([1, 600, 5000, 900_000, 3 * MIB, 15 * MIB]), rng.randrange(3)))
        spans = sorted((block.address, block.address + block.size) for block in live)
        assert all(stop <= start for (_, stop), (start, _) in pairwise(spans))
        assert allocator.allocated_bytes == sum(block.size for block in live)
    for block in live:
        allocator.free(block)
    assert allocator.allocated_bytes == 0
    assert sum(size for pool in allocator._free.values() for size, _ in pool) == allocator.reserved_bytes
