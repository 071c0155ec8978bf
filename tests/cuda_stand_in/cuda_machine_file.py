"""The measurements for a machine file among several devices. Times mean nothing here; each must succeed."""

import pytest
import torch

from dpbench.doctor.child import measure_machine
from dpbench.doctor.child.measure_machine import measure
from dpbench.doctor.write_machine import MeasureRequest

COUNT = torch.cuda.device_count()
DEVICES = [torch.device("cuda", index) for index in range(COUNT)]


def test_all_devices_are_measured(monkeypatch):
    monkeypatch.setattr(measure_machine, "SIZE_BYTES", 1 << 16)
    monkeypatch.setattr(measure_machine, "_MOST_EDGE", 64)
    monkeypatch.setattr(measure_machine, "_LEAST_EDGE", 64)
    if COUNT < 2:
        pytest.skip(f"pairs need 2 devices, and there is {COUNT}")
    found = measure(DEVICES, MeasureRequest())
    assert (found.failures, len(found.names), found.is_peer) == ({}, COUNT, True)
    assert all(min(each) > 0 for each in (found.products["float32"], found.memory, found.copies, found.all_reduce))
