"""The measurements behind a machine file, with few repeats: all of them succeed, and the file loads."""

import pytest
import torch

from dpbench.doctor.child import timing
from dpbench.doctor.child.measure_machine import measure
from dpbench.doctor.describe import machine_text
from dpbench.doctor.described_host import measured_costs
from dpbench.doctor.measured import MeasureRequest
from dpbench.projection.described.machine import HostCost, Kind
from dpbench.projection.described.machine_file import known_parts, load_machine
from tests.gpu.device import needs_streams, skip_without_gpu

pytestmark = pytest.mark.gpu
skip_without_gpu()

NOT_ON_ONE = {HostCost.STEP, HostCost.COLLECTIVE}
NOISY = {HostCost.BACKWARD, HostCost.BACKWARD_START, HostCost.OPTIMISER_PARAMETER, HostCost.REPLICATE_MODULE}
"""These are differences, so three repeats may show none."""


@needs_streams
def test_everything_on_one_device_is_measured_and_the_file_loads(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "_MOST", 3)
    found = measure([torch.device("cuda", 0)], MeasureRequest())
    assert found.failures == {}
    assert {each.kind for each in found.operators} == set(Kind)
    assert all(min(each.seconds) > 0 for each in found.operators)
    assert set(HostCost) - set(measured_costs(found, "")) <= NOT_ON_ONE | NOISY | {HostCost.FORWARD_PYTHON}
    file = tmp_path / "this.toml"
    file.write_text(machine_text(found, known_parts()))
    machine = load_machine(str(file))
    assert (machine.devices, machine.ring) == (1, None)
