"""Each device has its own generator; lanes on one device share it, and all share the CPU's."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel.dispatch import TRIES
from tests.parallel.models import Call
from tests.parallel.on_lanes import no_warnings

APART = ["sim:0", "sim:1", "sim:2"]


def on_threads(base, devices):
    wrapper = DataParallel(base.to(devices[0]), devices, policy=Policy(dispatch="threads"))
    return lambda: wrapper(torch.ones(6, 5, device=devices[0]))


def test_draws_from_each_devices_own_generator_are_not_warned_of():
    step = on_threads(nn.Dropout(0.5), APART)
    with no_warnings():
        torch.sim.manual_seed_all(3)
        first = step().cpu()
        torch.sim.manual_seed_all(3)
        assert torch.equal(step().cpu(), first)


@pytest.mark.parametrize(
    ("base", "devices", "name"),
    [
        (nn.Dropout(0.5), ["sim:1", "sim:1"], "sim:1"),
        (nn.Dropout(0.5), ["sim:0", "sim:1", "sim:1"], "sim:1"),
        (Call(lambda self, x: x + torch.rand(1).item()), APART, "cpu"),
    ],
    ids=["one device", "two of three on one", "the CPU's"],
)
def test_the_warning_of_a_shared_generator_names_its_device(base, devices, name):
    with pytest.warns(UserWarning, match=rf"random numbers were drawn from the generator of {name},"):
        on_threads(base, devices)()


def test_lanes_on_one_device_draw_in_their_order():
    def trained(dispatch):
        torch.sim.manual_seed_all(3)
        wrapper = DataParallel(nn.Dropout(0.5), ["sim:0"] * 3, policy=Policy(dispatch=dispatch))
        return torch.cat([wrapper(torch.ones(6, 5, device="sim:0")).cpu() for _ in range(3 * TRIES + 2)])

    assert torch.equal(trained("auto"), trained("sequence"))


@pytest.mark.parametrize("dispatch", ["sequence", "threads", "auto"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_in_a_replica_draws_again_what_its_forward_drew(reentrant, dispatch):
    base = Call(lambda self, x: checkpoint(nn.functional.dropout, x, use_reentrant=reentrant))
    wrapper = DataParallel(base, APART, policy=Policy(dispatch=dispatch))
    for _ in range(3 * TRIES + 2):
        x = torch.ones(30, 9, device="sim:0", requires_grad=True)
        output = wrapper(x)
        output.sum().backward()
        assert torch.equal(x.grad, output)
