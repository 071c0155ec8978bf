"""Interrupts of a step at any moment: training goes on, and streams, device and memory are as before."""

import gc

import pytest
import torch

from dpbench.parallel import DataParallel, Policy
from tests.parallel.interrupting import Training, assert_leaves_nothing, interrupt_at, train_with_interrupts
from tests.sampling import sampled

COUNT = torch.cuda.device_count()
DEVICES = [f"cuda:{index}" for index in range(COUNT)]
SMALL = {"bucket_bytes": 200, "first_bucket_bytes": 64}
POLICIES = {
    "star": {**SMALL, "route": "star", "dispatch": "sequence"},
    "chain": {**SMALL, "route": "chain", "dispatch": "threads"},
    "interleaved": {"dispatch": "interleaved"},
    "NCCL": {**SMALL, "route": "nccl", "dispatch": "sequence"},
}
MOMENTS, RANDOM = 60, 100

if COUNT < 2:
    pytest.skip("lanes apart need 2 devices", allow_module_level=True)


def current():
    return [torch.cuda.current_device(), *[torch.cuda.current_stream(index) for index in range(COUNT)]]


def allocated_bytes():
    gc.collect()
    for index in range(COUNT):
        torch.cuda.synchronize(index)
    return [torch.cuda.memory_allocated(index) for index in range(COUNT)]


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_training_goes_on_and_nothing_is_left(policy):
    def train():
        training = Training(lambda base: DataParallel(base, DEVICES, policy=Policy(**policy)), "cuda:0")
        training.step()
        before = current()
        for moment in sampled(range(1, interrupt_at(0, training.step) + 1), MOMENTS):
            interrupt_at(moment, training.step)
            assert current() == before
            training.assert_goes_on()
        assert train_with_interrupts(training, RANDOM) > 0.9 * RANDOM
        return training

    train()  # libraries and probes keep memory of their own
    before = allocated_bytes()
    with torch.cuda.stream(torch.cuda.Stream("cuda:1")):
        assert_leaves_nothing(train)
    assert allocated_bytes() == before
