"""A torch that the simulator was not tested with is tried in a child process, once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dpbench
from dpbench.simulator import trial
from dpbench.simulator.trial import Answer, digest, fault_with
from tests.simulated import NO_GPU, needs_simulator

NEVER = (sys.executable, "-c", "raise SystemExit('checked again')")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The cache file for torch 9.9.0."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "dpbench" / f"simulator-torch9.9.0-py{sys.version_info.major}.{sys.version_info.minor}.json"


def printing(fault, simulator=None):
    """A self-check that finds `fault`, after other output."""
    answer = Answer(simulator=simulator or digest(), fault=fault)
    return (sys.executable, "-c", f"print('noise'); print({answer.model_dump_json()!r})")


@needs_simulator
def test_a_newer_torch_that_passes_is_used_and_its_answer_is_kept(cache):
    code = "import torch; torch.__version__ = '9.9.0'; from dpbench.simulator import simulate; simulate(2);"
    code += "print(torch.ones(3, device='sim:1').sum().item())"
    done = subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **NO_GPU}, capture_output=True)
    assert done.stdout == b"3.0\n"
    assert Answer.model_validate_json(cache.read_bytes()) == Answer(simulator=digest(), fault=None)
    assert fault_with("9.9.0", NEVER) is None


# What a newer torch may break, and a part of the fault that the self-check finds.
BREAKS = {
    "ShadowMemory.read = lambda *_: set(); ShadowMemory.write = lambda *_: None": (
        "a race is not reported: a read of another stream's write"
    ),
    "SimStorage.keep_for = lambda *_: None": (
        "a write to memory that another stream still reads is reported as a race although it waits"
    ),
    "Allocator.free = lambda *_: None": "a race is not reported: a write to memory that another stream still reads",
    "Allocator.allocate = lambda self, size, stream, real=Allocator.allocate: real(self, size + 512, stream)": (
        "allocated bytes: 2048, not 1024"
    ),
    "autograd._before_node = lambda *_: None": "streams of the backward of exp",
    "autograd.assign_stream = lambda *_: None": "streams of the backward of exp: {0}, not {",
    "autograd.apply_function = lambda apply, *arguments: apply(*arguments)": "streams of the backward of a custom",
    "Simulation.wait = lambda *_: None": "RaceError",
    "compute.flops = lambda *_: 0": "FLOPs by device: {}, not {0: 144, 1: 144}",
    "comm._copied = lambda tensor, device, real=comm._copied: (real(tensor, device), real(tensor, device))[1]": (
        "bytes over each link: {(None, 0): 48, (None, 1): 48, (0, 1): 156, (1, 0): 96}, not {"
    ),
    "torch.autograd.Function.apply = None": "AttributeError: 'NoneType' object has no attribute '__get__'",
    "del torch.autograd._engine_run_backward": "AttributeError: module 'torch.autograd' has no attribute",
    "torch.sigmoid, torch.tanh = torch.tanh, lambda x: x.tanh() + x.detach()": "gradient of a matrix product",
    "torch.optim.AdamW.step = lambda self: self.param_groups[0]['params'][0].data.normal_()": "weights after two steps",
}
# Each breaks a fork of one process that has imported torch.
BREAKING = """
import json, os, sys
import torch, torch._dynamo
from dpbench.simulator import autograd, comm, compute, self_check
from dpbench.simulator.memory.allocator import Allocator
from dpbench.simulator.memory.races import ShadowMemory
from dpbench.simulator.memory.storages import SimStorage
from dpbench.simulator.simulation import Simulation
for damage in json.load(sys.stdin):
    if os.fork() == 0:
        exec(damage)
        print(json.dumps([damage, self_check.fault()]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def faults():
    """Return the fault of each damage, and of no damage."""
    command = [sys.executable, "-c", BREAKING]
    done = subprocess.run(
        command, check=True, input=json.dumps(["", *BREAKS]), capture_output=True, env=NO_GPU, text=True
    )
    return dict(map(json.loads, done.stdout.splitlines()))


@needs_simulator
@pytest.mark.parametrize("damage", BREAKS)
def test_a_broken_simulator_is_found(damage, faults):
    assert BREAKS[damage] in faults[damage]
    assert "\n" not in faults[damage]


@needs_simulator
def test_an_undamaged_simulator_has_no_fault(faults):
    assert faults[""] is None


@needs_simulator
def test_the_child_reports_a_fault_and_the_answer_is_kept(cache):
    code = "import torch; del torch.autograd.Function.apply; from dpbench.simulator.self_check import main; main()"
    fault = fault_with("9.9.0", (sys.executable, "-c", code))
    assert fault == "KeyError: 'apply'"
    assert fault_with("9.9.0", NEVER) == fault


def test_an_answer_is_for_one_torch_and_one_simulator(cache):
    assert fault_with("9.9.0", printing("old", simulator="another")) == "old"
    assert fault_with("9.9.0", printing("new")) == "new"
    assert fault_with("9.9.0", NEVER) == "new"
    assert fault_with("9.9.1", printing("other")) == "other"


@pytest.mark.parametrize("content", [b"", b"{", b"null", b'{"simulator": 1}', b"\xff", b"[" * 100_000])
def test_a_corrupt_cache_is_ignored(cache, content):
    cache.parent.mkdir()
    cache.write_bytes(content)
    assert fault_with("9.9.0", printing(None)) is None
    assert fault_with("9.9.0", NEVER) is None


def test_a_cache_that_is_no_file_is_ignored(cache):
    cache.parent.mkdir()
    os.mkfifo(cache)
    assert fault_with("9.9.0", printing("found")) == "found"
    assert cache.is_fifo()


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "HOME"])
def test_a_cache_that_cannot_be_written_is_harmless(tmp_path, monkeypatch, variable):
    (tmp_path / "file").touch()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv(variable, str(tmp_path / "file"))
    assert fault_with("9.9.0", printing(None)) is None
    assert fault_with("9.9.0", printing("again")) == "again"


def test_a_relative_cache_home_is_not_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    fault_with("9.9.0", printing(None))
    assert {path.name for path in tmp_path.iterdir()} == {"home"}


def test_a_check_without_an_answer_is_a_fault_that_is_not_kept(cache, monkeypatch):
    code = "import sys; print('partial'); sys.exit('no such\\nmodule: torch')"
    assert fault_with("9.9.0", (sys.executable, "-c", code)) == (
        "the self-check ended with exit status 1: module: torch"
    )
    code = "import os; os.abort()"
    assert fault_with("9.9.0", (sys.executable, "-c", code)) == "the self-check ended with exit status -6"
    monkeypatch.setattr(trial, "LIMIT_S", 0.2)
    assert fault_with("9.9.0", ("sleep", "60")) == "the self-check had no answer after 0.2 s"
    assert not cache.exists()


def test_the_child_finds_this_dpbench_and_sees_no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    code = "import os, sys; sys.exit(os.environ['PYTHONPATH'] + repr(os.environ['CUDA_VISIBLE_DEVICES']))"
    root = Path(dpbench.__file__).parents[1]
    assert fault_with("9.9.0", (sys.executable, "-P", "-c", code)).endswith(f": {root}:/elsewhere''")
