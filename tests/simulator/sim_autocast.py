"""Autocast on simulated devices: the types are those of CUDA, and the casts are operators that are counted."""

import pytest
import torch
from torch import nn

from dpbench.simulator import recording


def model():
    return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 5)).to("sim:0")


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda x: x @ x, torch.bfloat16),
        (lambda x: nn.functional.linear(x, x), torch.bfloat16),
        (lambda x: torch.bmm(x[None], x[None]), torch.bfloat16),
        (lambda x: torch.softmax(x.bfloat16(), 1), torch.float32),
        (lambda x: x.bfloat16().sum(), torch.float32),
        (lambda x: x.bfloat16().exp(), torch.float32),
        (lambda x: nn.functional.layer_norm(x.bfloat16(), (3,)), torch.float32),
        (lambda x: torch.sum(x.bfloat16(), 1, dtype=torch.bfloat16), torch.bfloat16),
        (lambda x: x.double() @ x.double(), torch.float64),
        (lambda x: x.relu(), torch.float32),
    ],
)
def test_an_operator_gives_the_type_that_it_gives_on_cuda(call, kind):
    x = torch.ones(3, 3, device="sim:0")
    with torch.autocast("sim", dtype=torch.bfloat16):
        assert call(x).dtype is kind
    with torch.autocast("sim", enabled=False):
        assert (x @ x).dtype is torch.float32


def test_a_step_trains_float32_weights_as_on_the_cpu():
    simulated, x, y = model(), torch.randn(3, 4), torch.tensor([0, 1, 2])
    plain = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 5))
    plain.load_state_dict({name: value.cpu() for name, value in simulated.state_dict().items()})
    for module, device in ((simulated, "sim:0"), (plain, "cpu")):
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(module(x.to(device)), y.to(device))
        loss.backward()
    for ours, theirs in zip(simulated.parameters(), plain.parameters(), strict=True):
        assert ours.grad.dtype is torch.float32
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, atol=0.02, rtol=0.05)


def test_casts_are_recorded():
    module, x = model(), torch.ones(3, 4, device="sim:0")
    counts = []
    for is_enabled in (False, True):
        with recording() as seen, torch.autocast("sim", dtype=torch.bfloat16, enabled=is_enabled):
            module(x)
        counts.append(sum("_to_copy" in str(event) for event in seen.events))
    # Two linear layers cast an input, a weight and a bias each; the norm its input.
    assert counts == [0, 7]
