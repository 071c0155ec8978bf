"""The measurements for a machine file among several devices. Times mean nothing here; each must succeed."""

import pytest
import torch

from benchmarks import measure_machine
from benchmarks.machine_file import MeasureRequest
from benchmarks.measure_machine import measure

COUNT = torch.cuda.device_count()
DEVICES = [torch.device("cuda", index) for index in range(COUNT)]


def test_all_devices_are_measured(monkeypatch):
    monkeypatch.setattr(measure_machine, "SIZE_BYTES", 1 << 16)
    monkeypatch.setattr(measure_machine, "_MOST_EDGE", 64)
    monkeypatch.setattr(measure_machine, "_LEAST_EDGE", 64)
    if COUNT < 2:
        pytest.skip(f"pairs need 2 devices, and there is {COUNT}")
    measured = measure(DEVICES, MeasureRequest())
    assert (measured.failures, len(measured.names), measured.is_peer) == ({}, COUNT, True)
    timed = (measured.products["float32"], measured.memory, measured.copies, measured.all_reduce)
    assert all(min(values) > 0 for values in timed)
