"""An import changes nothing, and a refused start gives its reason.

No test here starts the simulator.
"""

import subprocess
import sys

import pytest
import torch

from dpbench.simulator import simulate
from dpbench.simulator.simulation import the_simulation
from dpbench.simulator.torch_versions import TESTED
from tests.simulated import NO_GPU


@pytest.fixture
def _tested(monkeypatch):
    monkeypatch.setattr(torch, "__version__", f"{TESTED[-1]}.0")


def test_importing_registers_nothing():
    code = """
import torch, dpbench.simulator
assert torch._C._get_privateuse1_backend_name() == "privateuseone"
assert not torch.accelerator.is_available() and not hasattr(torch, "sim")
assert torch.Stream.__module__ != "dpbench.simulator.torch_sim"
assert "dpbench" not in torch.autograd._engine_run_backward.__module__
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=NO_GPU)


def test_an_untested_torch_is_refused(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "9.9.0+cpu")
    with pytest.raises(RuntimeError, match=r"the simulator was tested with torch 2\.13, 2\.14; this is 9\.9\.0\+cpu"):
        simulate(2)


@pytest.mark.usefixtures("_tested")
def test_another_backend_is_not_replaced(monkeypatch):
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "npu")
    with pytest.raises(RuntimeError, match="another backend, npu, is registered"):
        simulate(2)


@pytest.mark.usefixtures("_tested")
def test_a_real_accelerator_is_refused(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    with pytest.raises(RuntimeError, match="torch sees a real accelerator"):
        simulate(2)


def test_use_before_the_start_is_refused():
    with pytest.raises(RuntimeError, match="the simulator is not started"):
        the_simulation()
