"""The memory of the sums: the first arrived gradients, if unused and of the same layout."""

import copy

import torch
from torch import nn

from dpbench.parallel import DataParallel

DEVICES = ["sim:0", "sim:1", "sim:2"]


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 5, 3)).to(memory_format=torch.channels_last)


def gradients(module, parameters, x, **kwargs):
    return torch.autograd.grad(module(x).square().sum(), parameters, **kwargs)


def test_sums_have_the_layout_that_the_bare_modules_gradients_have():
    base, x = convolutions(), torch.randn(6, 3, 7, 7).contiguous(memory_format=torch.channels_last)
    bare = copy.deepcopy(base)
    wrapper = DataParallel(base.to("sim:0"), DEVICES)
    for ours, theirs in zip(
        gradients(wrapper, list(base.parameters()), x), gradients(bare, list(bare.parameters()), x), strict=True
    ):
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours.cpu(), theirs)


def test_sums_are_no_views_of_each_others_memory():
    base = nn.Linear(5, 4).to("sim:0")
    weight, bias = gradients(DataParallel(base, DEVICES), [base.weight, base.bias], torch.randn(6, 5))
    before = bias._version
    weight.zero_()
    assert bias._version == before
    weight.detach_()  # refused for a view


def test_a_gradient_that_a_hook_keeps_is_not_added_into():
    base = nn.Linear(5, 4).to("sim:0")
    kept = {}

    def keep(module, *_):
        device = module.weight.device.index
        module.weight.register_hook(lambda grad: kept.update({device: (grad, grad.cpu())}))

    base.register_forward_hook(keep)
    DataParallel(base, DEVICES)(torch.randn(6, 5)).sum().backward()
    assert sorted(kept) == [0, 1, 2]
    for grad, then in kept.values():
        torch.testing.assert_close(grad.cpu(), then, rtol=0, atol=0)


def test_gradients_of_gradients_lead_through_the_sums():
    base = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    bare, x = copy.deepcopy(base), torch.randn(6, 5)
    wrapper = DataParallel(base.to("sim:0"), DEVICES)

    def second(module, parameters):
        grads = gradients(module, parameters, x, create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in grads), parameters)

    for ours, theirs in zip(
        second(wrapper, list(base.parameters())), second(bare, list(bare.parameters())), strict=True
    ):
        torch.testing.assert_close(ours.cpu(), theirs)
