"""Interrupts of a step at any moment: training goes on, and streams, device and memory are as before."""

import gc

import pytest
import torch

from dpbench.parallel import DataParallel, Policy
from tests.parallel.interrupting import SMALL, Training, assert_leaves_nothing, interrupt_at_all, interrupt_at_random

COUNT = torch.cuda.device_count()
POLICIES = {
    "star": {**SMALL, "route": "star", "dispatch": "sequence"},
    "chain": {**SMALL, "route": "chain", "dispatch": "threads"},
    "NCCL": {**SMALL, "route": "nccl", "dispatch": "sequence"},
}
MOMENTS, RANDOM = 60, 100

if COUNT < 2:
    pytest.skip("lanes apart need 2 devices", allow_module_level=True)


def allocated_bytes():
    gc.collect()
    for index in range(COUNT):
        torch.cuda.synchronize(index)
    return [torch.cuda.memory_allocated(index) for index in range(COUNT)]


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_training_goes_on_and_nothing_is_left(policy):
    def train():
        training = Training(lambda base: DataParallel(base, policy=Policy(**policy)), "cuda:0")
        training.goes_on()
        interrupt_at_all(training, training.backward, MOMENTS)
        interrupt_at_random(training, RANDOM)
        return training

    train()  # libraries and probes keep memory of their own
    before = allocated_bytes()
    with torch.cuda.stream(torch.cuda.Stream("cuda:1")):
        assert_leaves_nothing(train)
    assert allocated_bytes() == before
