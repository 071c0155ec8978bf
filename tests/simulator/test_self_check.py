"""The simulator works with this torch, and each fault that a newer torch may bring is found."""

import json
import subprocess
import sys

import pytest

from tests.simulated import NO_GPU, needs_simulator

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
from dpbench.simulator import autograd, comm, compute
from dpbench.simulator.memory.allocator import Allocator
from dpbench.simulator.memory.races import ShadowMemory
from dpbench.simulator.memory.storages import SimStorage
from dpbench.simulator.simulation import Simulation
from tests.simulator import self_check
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
