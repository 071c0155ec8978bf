"""Interrupts of a forward on simulated devices: no race, and the caller's streams and device are current again."""

import pytest
import torch

from tests.parallel.interrupting import Training, interrupt_at
from tests.parallel.on_lanes import wrap
from tests.sampling import sampled

POLICIES = {
    "star": {"bucket_bytes": 200, "first_bucket_bytes": 64, "route": "star"},
    "chain": {"bucket_bytes": 200, "first_bucket_bytes": 64, "route": "chain"},
    "threads": {"bucket_bytes": 200, "first_bucket_bytes": 64, "dispatch": "threads"},
    "skip unchanged": {"skip_unchanged": True},
}
MOMENTS = 60
sim = torch.get_device_module("sim")


class StreamContext:
    """A copy of ``torch.cuda.StreamContext``. Interrupted at its begin or its end, it leaves the stream current."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        self.here = sim.current_stream()
        self.there = sim.current_stream(self.stream.device)
        sim.set_stream(self.stream)

    def __exit__(self, *_):
        sim.set_stream(self.there)
        sim.set_stream(self.here)


def current():
    return [sim.current_device(), *[sim.current_stream(i).stream_id for i in range(4)]]


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_forward_may_be_interrupted_at_any_moment(policy, monkeypatch):
    monkeypatch.setattr(sim, "stream", StreamContext)
    training = Training(lambda base: wrap(base, **policy), "sim:0")
    sim.set_stream(sim.Stream("sim:1"))  # not the default one, and not the first device
    before = current()
    training.step()
    steps = [lambda: training.wrapper(training.x), training.assert_goes_on]
    for where in ("dpbench/parallel", "sim_interrupts"):  # elsewhere an interrupt would break the simulator
        for moment in sampled(range(1, interrupt_at(0, steps[0], where) + 1), MOMENTS):
            interrupt_at(moment, steps[0], where)
            assert current() == before, (where, moment)
            training.assert_goes_on()
    sim.set_stream(sim.default_stream("sim:1"))
    sim.set_device(0)
