"""Interleaved lanes on devices: the order of the operators, and what a step does."""

from collections import Counter

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dpbench.parallel import DataParallel, Policy
from dpbench.records.recording import Operator
from dpbench.simulator import recording
from tests.parallel.models import Call

DEVICES = [f"sim:{i}" for i in range(4)]
LAYERS = 10


def recorded_steps(dispatch, count=3, devices=DEVICES):
    """The wrapper, and the events of each step."""
    wrapper = DataParallel(
        nn.Sequential(*[nn.Linear(8, 8) for _ in range(LAYERS)]).to("sim:0"), devices, policy=Policy(dispatch=dispatch)
    )
    steps = []
    for _ in range(count):
        wrapper.zero_grad()
        with recording() as recorded:
            wrapper(torch.randn(16, 8)).sum().backward()
        steps.append(recorded.events)
    return steps


def linears(events):
    return [event.device for event in events if isinstance(event, Operator) and event.name.startswith("aten.addmm")]


def test_the_operators_of_the_lanes_alternate_in_the_same_order_in_each_step():
    turns = (1, 2, 4, 3)
    want = [device for turn in turns for device in range(4) for _ in range(turn)]
    assert [linears(step) for step in recorded_steps("interleaved")] == [want] * 3
    assert linears(recorded_steps("sequence")[-1]) == sorted(want)


def test_a_step_has_the_events_of_a_step_in_sequence():
    def counted(dispatch):
        return Counter((type(event).__name__, getattr(event, "name", "")) for event in recorded_steps(dispatch)[-1])

    assert counted("interleaved") == counted("sequence")


def test_lanes_on_one_device_draw_in_the_order_of_their_turns():
    def drawn():
        torch.sim.manual_seed_all(3)
        base = nn.Sequential(*[nn.Dropout(0.5) for _ in range(3)])
        wrapper = DataParallel(base, ["sim:0"] * 3, policy=Policy(dispatch="interleaved"))
        return wrapper(torch.ones(6, 50, device="sim:0")).cpu()

    first = drawn()
    assert all(torch.equal(drawn(), first) for _ in range(5))


def test_a_checkpoint_on_a_shared_device_draws_again_what_its_forward_drew():
    inner = nn.Sequential(*[nn.Dropout(0.3) for _ in range(8)])
    base = Call(lambda self, x: checkpoint(self.inner, x, use_reentrant=False), inner=inner)
    wrapper = DataParallel(base, ["sim:0"] * 3, policy=Policy(dispatch="interleaved"))
    x = torch.ones(6, 50, device="sim:0", requires_grad=True)
    output = wrapper(x)
    output.sum().backward()
    assert torch.equal(x.grad.cpu(), output.detach().cpu())


def test_auto_tries_the_lanes_interleaved():
    linears_of_steps = [linears(step) for step in recorded_steps("auto", count=3)]
    assert linears_of_steps[0] == sorted(linears_of_steps[0])
    assert linears_of_steps[2][:8] == [0, 1, 2, 3, 0, 0, 1, 1]
