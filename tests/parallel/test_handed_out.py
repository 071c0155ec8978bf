"""Weights that were handed out serve the next forward only while they cannot be told from new ones."""

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy
from tests.parallel.four_lanes import train, wrap
from tests.parallel.models import Call, mlp
from tests.parallel.traces import BETWEEN_STEPS, IN_FORWARD, LANES, Probe, check, trace

DEVICES = ["cpu"] * LANES


@pytest.fixture(autouse=True)
def _unswapped():
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


def nodes_of_steps(steps, context=torch.enable_grad, **policy):
    """The graph node that each of the steps' first weight comes from."""
    nodes = []

    def forward(self, x):
        nodes.append(self.inner[0].weight.grad_fn)
        return self.inner(x)

    wrapper = wrap(Call(forward, inner=mlp()), dispatch="sequence", **policy)
    with context():
        train(wrapper, steps)
    return nodes


def test_untouched_weights_serve_again():
    assert len(set(nodes_of_steps(5))) == 1


def test_without_the_technique_each_forward_has_weights_of_its_own():
    assert len(set(nodes_of_steps(5, cache_replicas=False))) == 5


def test_where_anomalies_are_looked_for_each_forward_has_a_node_that_names_it():
    with pytest.warns(UserWarning, match="Anomaly Detection"):
        nodes = nodes_of_steps(3, torch.autograd.detect_anomaly)
    assert len(set(nodes)) == 3


@pytest.mark.parametrize("name", IN_FORWARD)
def test_what_a_forward_does_to_its_weights_does_not_reach_the_next(name):
    check(DEVICES, in_forward=IN_FORWARD[name])


@pytest.mark.parametrize("name", BETWEEN_STEPS)
def test_what_happens_between_two_steps_shows_in_the_second(name):
    check(DEVICES, between=BETWEEN_STEPS[name], scale_needs_grad=name == "buffer written in the graph")


@pytest.mark.parametrize("name", ["written", "hook", "kept", "other data"])
def test_a_trace_sees_what_is_done(name):
    """Or its equality would tell nothing."""
    policy = Policy(dispatch="sequence")
    assert trace(policy, DEVICES, in_forward=IN_FORWARD[name]) != trace(policy, DEVICES)


def test_one_node_serves_two_graphs_in_one_backward():
    """No graph keeps the values of a bias: two forwards have the same tensors, and their gradients meet in the node."""
    nodes = []

    def forward(self, x):
        nodes.append(self.bias.grad_fn)
        return x + self.bias

    base = Call(forward, bias=nn.Parameter(torch.zeros(4)))
    wrapper = DataParallel(base, DEVICES, policy=Policy(dispatch="sequence"))
    first, second = wrapper(torch.ones(4, 4)), wrapper(torch.ones(4, 4))
    (first.sum() + 2 * second.sum()).backward()
    assert base.bias.grad.tolist() == [12.0] * 4
    assert len(set(nodes)) == 1


def test_more_lanes_than_before_get_weights_of_their_own():
    base = Probe()
    wrapper = DataParallel(base, DEVICES, policy=Policy(dispatch="sequence"))
    for batch in (1, 4):
        wrapper(torch.ones(batch, 4)).sum().backward()
    assert base.bias.grad.tolist() == [5.0] * 4


def test_frozen_weights_beside_others_are_new_in_each_forward():
    def forward(self, x):
        self.inner.weight.mark = len(seen)
        seen.append(self.inner.weight)
        return self.inner(x)

    seen = []
    base = Call(forward, inner=nn.Linear(4, 4))
    base.inner.weight.requires_grad_(False)
    wrapper = DataParallel(base, DEVICES, policy=Policy(dispatch="sequence"))
    for _ in range(3):
        wrapper(torch.ones(4, 4)).sum().backward()
    assert [weight.mark for weight in seen[1::2]] == [1, 3, 5]


class Marked(torch.Tensor):
    pass


class Marking(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result.as_subclass(Marked) if func is torch.Tensor.detach else result


def test_what_a_mode_makes_of_weights_stays_in_the_mode():
    kinds = []

    def forward(self, x):
        kinds.append(type(self.inner.weight))
        return self.inner(x)

    wrapper = DataParallel(Call(forward, inner=nn.Linear(4, 4)), DEVICES, policy=Policy(dispatch="sequence"))
    with Marking():
        wrapper(torch.ones(4, 4)).sum().backward()
    wrapper(torch.ones(4, 4)).sum().backward()
    assert kinds == [Marked, torch.Tensor, torch.Tensor, torch.Tensor]


def test_weights_that_require_grad_are_refused_under_a_transform_also_after_a_step():
    """As in stock: their graph would lead past the transform."""
    wrapper = DataParallel(nn.Linear(4, 1), DEVICES, policy=Policy(dispatch="sequence"))
    wrapper(torch.ones(4, 4)).sum().backward()
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda x: wrapper(x).sum())(torch.ones(4, 4))
