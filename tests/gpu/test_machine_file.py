"""The measurements behind a machine file: all of them succeed, and the file loads."""

import pytest
import torch

from benchmarks.machine_file import MeasureRequest, write_machine_file
from benchmarks.measure_machine import measure
from dpbench.projection.machine_file import load_machine
from tests.gpu.device import needs_streams, skip_without_gpu

pytestmark = pytest.mark.gpu
skip_without_gpu()


@needs_streams
def test_everything_on_one_device_is_measured_and_the_file_loads(tmp_path):
    measured = measure([torch.device("cuda", 0)], MeasureRequest())
    assert measured.failures == {}
    assert all(min(values) > 0 for values in (measured.products["float32"], measured.memory, measured.gap_s))
    write_machine_file(tmp_path / "this.toml", measured)
    machine = load_machine(str(tmp_path / "this.toml"))
    assert (machine.devices, machine.ring) == (1, None)
