"""The measurements behind a machine file: all of them succeed on all devices, and the file loads."""

import pytest
import torch

from benchmarks import measure_machine
from benchmarks.machine_file import MeasureRequest, write_machine_file
from dpbench.projection.machine_file import load_machine
from tests.gpu.device import is_stand_in, skip_without_gpu

pytestmark = pytest.mark.gpu
skip_without_gpu()


def test_everything_is_measured_on_all_devices_and_the_file_loads(tmp_path, monkeypatch):
    if is_stand_in():  # times mean nothing there
        for name, size in {"SIZE_BYTES": 1 << 16, "_MOST_EDGE": 64, "_LEAST_EDGE": 64}.items():
            monkeypatch.setattr(measure_machine, name, size)
    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    measured = measure_machine.measure(devices, MeasureRequest())
    assert (measured.failures, len(measured.names)) == ({}, len(devices))
    timed = [measured.products["float32"], measured.memory, measured.gap_s]
    timed += [measured.copies, measured.all_reduce] if len(devices) > 1 else []
    assert all(min(values) > 0 for values in timed)
    write_machine_file(tmp_path / "this.toml", measured)
    machine = load_machine(str(tmp_path / "this.toml"))
    assert (machine.devices, machine.ring is None) == (len(devices), len(devices) == 1)
