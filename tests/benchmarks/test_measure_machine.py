"""The child that measures, on lanes of the CPU."""

import pytest
import torch

from benchmarks import measure_machine
from benchmarks.machine_file import MeasureRequest
from benchmarks.measure_machine import _noted, _pair, measure, repeated


def test_there_are_three_to_twenty_repeats_after_one_that_does_not_count():
    numbers = iter(range(100))
    assert repeated(lambda: next(numbers), 60.0) == tuple(range(1, 21))
    assert repeated(lambda: next(numbers), 0.0) == (22, 23, 24)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(measure_machine, "SIZE_BYTES", 1 << 16)
    monkeypatch.setattr(measure_machine, "_MOST_EDGE", 64)
    monkeypatch.setattr(measure_machine, "_LEAST_EDGE", 64)
    monkeypatch.setattr(measure_machine, "_BUDGET_S", 0.0)


def test_two_lanes_of_the_cpu_have_all_numbers_but_the_all_reduce(quick):
    measured = measure([torch.device("cpu")] * 2, MeasureRequest())
    assert min(map(min, (measured.products["float32"], measured.memory, measured.gap_s, measured.copies))) > 0
    assert (measured.capability, measured.copy_pair, measured.is_peer, measured.all_reduce) == (None, (0, 1), True, ())
    assert measured.failures == {"all-reduce": "this torch has no NCCL for cpu"}


def test_one_device_has_no_copy_and_no_all_reduce(quick):
    measured = measure([torch.device("cpu")], MeasureRequest())
    assert (measured.copy_pair, measured.copies, measured.failures) == (None, (), {})


def test_copies_are_between_the_first_pair_with_nvlink():
    assert _pair(()) == _pair(("0-1 SYS",)) == (0, 1)
    assert _pair(("0-1 SYS", "0-2 NV4", "1-2 NV4")) == (0, 2)


def test_what_raises_is_named_and_the_rest_is_measured():
    failures = {}
    with _noted("copy", failures):
        raise torch.OutOfMemoryError("no memory\nat all")
    assert failures == {"copy": "no memory"}
