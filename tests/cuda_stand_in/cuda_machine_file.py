"""Measurements among several devices for a machine file. Times mean nothing here; each measurement must succeed."""

from itertools import combinations

import pytest
import torch

from dpbench.doctor.child import collectives, copies, timing
from dpbench.doctor.child.host_calls import slopes
from dpbench.doctor.child.measure_machine import same_work
from dpbench.doctor.child.timing import Bench
from dpbench.projection.described.machine import HostCost

COUNT = torch.cuda.device_count()
DEVICES = [torch.device("cuda", index) for index in range(COUNT)]
if COUNT < 2:
    pytest.skip(f"pairs need 2 devices, and there is {COUNT}", allow_module_level=True)


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "_LEAST_EDGE", 64)
        patch.setattr(timing, "_MOST_EDGE", 64)
        patch.setattr(timing, "_MOST", 3)
        patch.setattr(copies, "COPY_BYTES", 1 << 16)
        patch.setattr(collectives, "_LARGE_BYTES", 1 << 16)
        yield Bench(DEVICES)


def test_copies_of_a_pair(bench):
    found = copies.pair_copies(bench, *DEVICES[-2:])
    assert (found.source, found.destination, found.is_peer) == (COUNT - 2, COUNT - 1, True)
    assert min(*found.seconds, *found.latency_s) > 0


def test_copies_from_the_host_to_pairs_and_to_all(bench):
    found = [each.devices for each in copies.to_all(bench)]
    all_devices = tuple(range(COUNT))
    assert found == [*combinations(all_devices, 2), *([all_devices] if COUNT > 2 else [])]


def test_copies_from_the_first_device_to_all_others(bench):
    found = copies.from_first(bench)
    assert found.devices == tuple(range(1, COUNT))
    assert min(*found.alone_s, *found.together_s) > 0


def test_collectives(bench):
    found = collectives.collectives(bench)
    assert all(min(each) > 0 for each in (found.all_reduce_s, found.broadcast_s, found.small_s, found.host_s))


def test_the_same_work_on_each_device(bench):
    assert [len(series) for series in same_work(bench)] == [3] * COUNT


def test_replicas_are_made_on_two_devices(bench):
    (slope,) = (measure() for cost, measure in slopes(bench) if cost is HostCost.REPLICATE_MODULE)
    assert (slope.short, slope.long) == (2 * 3 * 5, 2 * 3 * 25)
