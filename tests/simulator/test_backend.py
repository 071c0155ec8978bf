"""An import changes nothing, and a refused start gives its reason.

No test here starts the simulator.
"""

import re
import subprocess
import sys

import pytest
import torch

from dpbench.simulator import simulate
from dpbench.simulator.simulation import the_simulation
from dpbench.simulator.torch_versions import TESTED, why_unsupported
from tests.simulated import NO_GPU


@pytest.fixture
def _no_accelerator(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)


def test_importing_registers_nothing():
    code = """
import torch, dpbench.simulator
assert torch._C._get_privateuse1_backend_name() == "privateuseone"
assert not torch.accelerator.is_available() and not hasattr(torch, "sim")
assert torch.Stream.__module__ != "dpbench.simulator.torch_sim"
assert "dpbench" not in torch.autograd._engine_run_backward.__module__
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=NO_GPU)


@pytest.mark.usefixtures("_no_accelerator")
def test_an_older_torch_that_was_not_tested_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.0+cpu")
    words = "the simulator was tested with torch 2.13, 2.14; this is 2.9.0+cpu; allowed: one of these, such as `pip"
    with pytest.raises(RuntimeError, match=f"^{re.escape(words)}"):
        simulate(2)


@pytest.mark.parametrize("version", [f"{TESTED[0]}.0", f"{TESTED[-1]}.1+cu130", f"{TESTED[-1]}.0a0+git1"])
def test_a_tested_torch_is_not_refused(version):
    assert why_unsupported(version) is None


def test_another_backend_is_not_replaced(monkeypatch):
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "npu")
    with pytest.raises(RuntimeError, match="another backend, npu, is registered"):
        simulate(2)


def test_a_real_accelerator_is_refused(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    with pytest.raises(RuntimeError, match="torch sees a real accelerator"):
        simulate(2)


def test_use_before_the_start_is_refused():
    with pytest.raises(RuntimeError, match="the simulator is not started"):
        the_simulation()
