"""Changes of weights in a forward or between steps do not show in a later forward."""

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy
from tests.parallel.models import Call
from tests.parallel.traces import IN_FORWARD, LANES, TRACES, Probe, check, trace

DEVICES = ["cpu"] * LANES


@pytest.mark.parametrize("name", TRACES)
def test_a_cached_replica_shows_nothing_of_an_earlier_forward(name):
    check(DEVICES, name)


@pytest.mark.parametrize("name", ["written", "hook", "kept", "other data"])
def test_a_trace_differs_if_the_weight_is_touched(name):
    """Otherwise the equality of traces would prove nothing."""
    policy = Policy(dispatch="sequence")
    assert trace(policy, DEVICES, in_forward=IN_FORWARD[name]) != trace(policy, DEVICES)


@pytest.mark.parametrize("before", ["nothing", "a step", "a backward that retains the graph"])
def test_a_hook_sees_no_gradient_of_a_graph_that_still_waits(before):
    """No graph keeps the values of a bias, so only the graph itself shows that it is in use."""
    seen = []

    def forward(self, x):
        if is_second:
            self.bias.register_hook(lambda grad: seen.append(grad.tolist()))
        return x + self.bias

    is_second = False
    base = Call(forward, bias=nn.Parameter(torch.zeros(1)))
    wrapper = DataParallel(base, DEVICES, policy=Policy(dispatch="sequence"))
    if before == "a step":
        wrapper(torch.ones(4, 1)).sum().backward()
    first = wrapper(torch.ones(4, 1)).sum()
    if before == "a backward that retains the graph":
        first.backward(retain_graph=True)
    is_second = True
    second = wrapper(torch.ones(4, 1)).sum()
    base.bias.grad = None
    (first + 2 * second).backward()
    assert seen == [[4.0]] * LANES
    assert base.bias.grad.tolist() == [12.0]


def test_a_weight_that_a_forward_narrows_is_whole_in_the_next():
    def forward(self, x):
        out = x + self.weight.sum()
        self.weight.data = self.weight.data[:1]
        return out

    base = Call(forward, weight=nn.Parameter(torch.ones(4)))
    wrapper = DataParallel(base, DEVICES, policy=Policy(dispatch="sequence"))
    wrapper(torch.zeros(4)).sum().backward()
    assert wrapper(torch.zeros(4)).tolist() == [4.0] * 4


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


CHANGES_OF_AN_ALIAS = {
    "data": lambda weight: setattr(weight, "data", torch.full_like(weight, 7)),
    "attribute": lambda weight: setattr(weight, "mark", 1),
    "grad": lambda weight: setattr(weight, "grad", torch.ones_like(weight)),
    "requires_grad": lambda weight: weight.requires_grad_(),
    "class": lambda weight: setattr(weight, "__class__", type("Marked", (type(weight),), {})),
}


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("change", CHANGES_OF_AN_ALIAS.values(), ids=list(CHANGES_OF_AN_ALIAS))
def test_a_training_forwards_changes_to_a_frozen_weight_are_lost_except_its_values(batch, change):
    """As in stock: the first lane has an alias of the weight."""

    def forward(self, x):
        with torch.no_grad():
            self.frozen.add_(1)
        change(self.frozen)
        return self.inner(x)

    frozen = nn.Parameter(torch.ones(4), requires_grad=False)
    before = dict(vars(frozen)), type(frozen)
    wrapper = DataParallel(Call(forward, inner=nn.Linear(4, 4), frozen=frozen), DEVICES)
    wrapper(torch.ones(batch, 4)).sum().backward()
    assert frozen.tolist() == [2] * 4
    assert (dict(vars(frozen)), type(frozen)) == before
    assert not frozen.requires_grad
    assert frozen.grad is None


class Marked(torch.Tensor):
    pass


class Marking(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result.as_subclass(Marked) if func is torch.Tensor.detach else result


def test_a_function_modes_subclass_of_weights_stays_in_the_mode():
    kinds = []

    def forward(self, x):
        kinds.append(type(self.inner.weight))
        return self.inner(x)

    wrapper = DataParallel(Call(forward, inner=nn.Linear(4, 4)), DEVICES, policy=Policy(dispatch="sequence"))
    with Marking():
        wrapper(torch.ones(4, 4)).sum().backward()
    wrapper(torch.ones(4, 4)).sum().backward()
    with Marking():
        wrapper(torch.ones(4, 4)).sum().backward()
    assert kinds == [Marked, torch.Tensor, torch.Tensor, torch.Tensor, Marked, torch.Tensor]


def test_a_node_has_metadata_of_its_own_forward_only():
    def forward(self, x):
        noted.append("traceback_" in self.inner.weight.grad_fn.metadata)
        return self.inner(x)

    noted = []
    wrapper = DataParallel(Call(forward, inner=nn.Linear(4, 4)), DEVICES, policy=Policy(dispatch="sequence"))
    with pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
        wrapper(torch.ones(4, 4)).sum().backward()
    wrapper(torch.ones(4, 4)).sum().backward()
    assert noted == [True, True, False, False]


def test_a_base_whose_weight_is_a_conjugate_view():
    base = Call(lambda self, x: torch.view_as_real(x * self.weight).sum(1), weight=nn.Parameter(torch.tensor([1 + 2j])))
    wrapper = DataParallel(base, DEVICES, policy=Policy(dispatch="sequence"))
    x = torch.ones(2, dtype=torch.cfloat)
    wrapper(x).sum().backward()
    base.weight.data = base.weight.data.conj()
    assert wrapper(x).tolist() == [-1, -1]


class Product(torch.autograd.Function):
    """Keeps only the weight's storage."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.kept = weight.untyped_storage(), weight.storage_offset(), weight.shape
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.empty(0).set_(*ctx.kept), grad


def test_memory_that_is_kept_as_a_storage_is_not_written_again():
    base = Call(lambda self, x: Product.apply(x, self.weight), weight=nn.Parameter(torch.ones(3)))
    wrapper = DataParallel(base, DEVICES, policy=Policy(dispatch="sequence"))
    x = torch.ones(4, 3, requires_grad=True)
    out = wrapper(x)
    base.weight.data = torch.full((3,), 7.0)
    wrapper(x)
    out.sum().backward()
    assert x.grad.tolist() == [[1.0] * 3] * 4


def test_weights_that_require_grad_work_under_a_transform_after_a_step_too():
    base = nn.Linear(4, 1)
    wrapper = DataParallel(base, DEVICES, policy=Policy(dispatch="sequence"))
    wrapper(torch.ones(4, 4)).sum().backward()
    slope = torch.func.grad(lambda x: wrapper(x).sum())(torch.ones(4, 4))
    assert torch.equal(slope, base.weight.expand(4, 4))
    assert torch.equal(torch.autograd.grad(slope.sum(), base.weight)[0], torch.full((1, 4), 4.0))
