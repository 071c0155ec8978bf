"""The check that lets a newer torch run finds what another torch could break."""

import json
import subprocess
import sys

import pytest

from tests.simulated import NO_GPU, needs_simulator

BREAKS = {
    "": None,
    "ShadowMemory.read = lambda *_: set(); ShadowMemory.write = lambda *_: None": (
        "a race is not found: a read of another stream's write"
    ),
    "compute.flops = lambda *_: 0": "single on transformer/tiny: the counts of two steps differ, or are 0",
    "step = SGD.step; SGD.step = lambda self: self.param_groups[0]['params'][0].is_cpu and step(self)": (
        "single on transformer/tiny: the weights after two steps differ from those of the CPU"
    ),
}
BREAKING = """
import json, os, sys
import torch
from torch.optim import SGD
from dpbench.measure import simulator_check
from dpbench.simulator import compute
from dpbench.simulator.memory.races import ShadowMemory
for damage in json.load(sys.stdin):
    if os.fork() == 0:
        exec(damage)
        print(json.dumps([damage, simulator_check.fault()]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def faults():
    done = subprocess.run(
        [sys.executable, "-c", BREAKING],
        check=True,
        input=json.dumps([*BREAKS]),
        capture_output=True,
        env=NO_GPU,
        text=True,
    )
    return dict(map(json.loads, done.stdout.splitlines()))


@needs_simulator
@pytest.mark.parametrize("damage", BREAKS)
def test_each_damage_is_found(damage, faults):
    assert faults[damage] == BREAKS[damage]
