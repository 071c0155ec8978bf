"""Interrupts of a forward on simulated devices: no race, and the caller's streams and device are current again."""

import pytest
import torch

from tests.parallel.interrupting import SMALL, Training, interrupt_at_all
from tests.parallel.on_lanes import wrap

POLICIES = {
    "star": {**SMALL, "route": "star"},
    "chain": {**SMALL, "route": "chain"},
    "threads": {**SMALL, "dispatch": "threads"},
    "skip unchanged": {"skip_unchanged": True},
}
PLACES, MOMENTS = ("dpbench/parallel", "parallel/module", "sim_interrupts"), 10
"""Elsewhere an interrupt would break the simulator."""
sim = torch.get_device_module("sim")


class StreamContext:
    """As ``torch.cuda.StreamContext``: interrupted at its begin or its end, it leaves the stream current."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        self.before = [sim.current_stream(self.stream.device), sim.current_stream()]
        sim.set_stream(self.stream)

    def __exit__(self, *_):
        for stream in self.before:
            sim.set_stream(stream)


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_forward_may_be_interrupted_at_any_moment(policy, where, monkeypatch):
    monkeypatch.setattr(sim, "stream", StreamContext)
    training = Training(lambda base: wrap(base, **policy), "sim:0")

    def switch():  # to a stream that the wrapper has not seen, on a device that is not the first
        sim.set_stream(sim.Stream("sim:1"))
        training.before = training.state()

    interrupt_at_all(training, training.forward, MOMENTS, where, prepare=switch)
    sim.set_stream(sim.default_stream("sim:1"))
    sim.set_device(0)
