"""``accumulate()`` gives the sums of plain accumulation, also where steps differ or fail."""

import copy

import pytest
import torch
from torch import nn

from tests.parallel.accumulating import (
    accumulate,
    assert_equal_grads,
    assert_next_step_is_right,
    batch,
    either,
    is_empty,
    loss_of,
    plainly,
    wrap,
)
from tests.parallel.models import Call
from tests.parallel.remote import take_remote_paths
from tests.sampling import sampled

ROUTES = ("star", "chain")
SMALL = {"bucket_bytes": 100, "first_bucket_bytes": 64}
STEPS = ((8, 8, 8), (8, 8, 3), (8, 8, 1), (2, 8), (1, 5, 2), (9,), (4, 4))


@pytest.fixture(autouse=True)
def _remote(monkeypatch):
    take_remote_paths(monkeypatch)


CASES = [
    pytest.param(route, sizes, fields, id=f"{route} {sizes} {fields}")
    for route in ROUTES
    for sizes in STEPS
    for fields in ({}, SMALL, {"coalesce": False}, {"dispatch": "threads"}, {"cache_replicas": False})
]


@pytest.mark.parametrize(("route", "sizes", "fields"), sampled(CASES, 30))
def test_the_sum_equals_that_of_the_bare_module(route, sizes, fields, pair):
    base, bare = pair
    wrapper = wrap(base, route=route, **fields)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in pair]
    for _ in range(2):
        batches = [batch(size) for size in sizes]
        for model in (wrapper, bare):
            model.zero_grad()
        accumulate(wrapper, batches)
        plainly(bare, batches)
        assert_equal_grads(base, bare)
        assert is_empty(wrapper)
        for optimizer in optimizers:
            optimizer.step()


def test_grad_gets_nothing_inside_and_is_added_to_at_the_end(pair):
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    plainly(bare, [x] * 3)
    loss_of(wrapper, x).backward()
    before = [p.grad.clone() for p in base.parameters()]
    with wrapper.accumulate():
        loss_of(wrapper, x).backward()
    for parameter, grad in zip(base.parameters(), before, strict=True):
        assert torch.equal(parameter.grad, grad)
    loss_of(wrapper, x).backward()
    assert_equal_grads(base, bare)


@pytest.mark.parametrize(
    "uses", [("first", "second"), ("second", "first"), ("first", "first", "second"), ("first", "second", "second")]
)
@pytest.mark.parametrize("fields", [{}, {"coalesce": False}, SMALL], ids=str)
@pytest.mark.parametrize("route", ROUTES)
def test_parameters_used_in_some_steps_only(uses, fields, route):
    base = Call(either, first=nn.Linear(5, 3), second=nn.Linear(5, 3), never=nn.Linear(5, 3)).double()
    bare = copy.deepcopy(base)
    wrapper = wrap(base, route=route, **fields)
    x = batch()
    for use in uses[:-1]:
        with wrapper.accumulate():
            wrapper(x, use=use).sum().backward()
    wrapper(x, use=uses[-1]).sum().backward()
    for use in uses:
        bare(x, use).sum().backward()
    assert_equal_grads(base, bare)
    assert is_empty(wrapper)


def test_the_last_step_may_need_no_gradients_of_some_parameters(pair):
    """A parameter frozen for the last step gets its kept gradients all the same."""
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    for model in (base, bare):
        with wrapper.accumulate():
            loss_of(wrapper if model is base else bare, x).backward()
        model[0].weight.requires_grad_(False)
        loss_of(wrapper if model is base else bare, x).backward()
    assert_equal_grads(base, bare)


def test_an_exception_drops_what_is_kept(pair):
    base, _ = pair
    wrapper = wrap(base)
    with wrapper.accumulate():
        loss_of(wrapper, batch()).backward()
    late = []

    def leave():
        with wrapper.accumulate():
            late.append(loss_of(wrapper, batch()))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave()
    assert is_empty(wrapper)
    late[0].backward()
    assert is_empty(wrapper), "a forward of the failed context keeps nothing"
    assert base[0].weight.grad is not None
    assert_next_step_is_right(wrapper)


class FailingBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ArithmeticError("as asked")


@pytest.mark.parametrize("is_inside", [True, False])
def test_a_failing_backward(is_inside):
    def forward(self, x, fails=False):
        x = self.first(x)
        return self.second(FailingBackward.apply(x) if fails else x)

    base = Call(forward, first=nn.Linear(5, 7), second=nn.Linear(7, 3)).double()
    wrapper = wrap(base, **SMALL)
    with wrapper.accumulate():
        loss_of(wrapper, batch()).backward()
    if is_inside:
        with pytest.raises(ArithmeticError), wrapper.accumulate():
            wrapper(batch(), fails=True).sum().backward()
    else:
        with pytest.raises(ArithmeticError):
            wrapper(batch(), fails=True).sum().backward()
    assert is_empty(wrapper)
    assert_next_step_is_right(wrapper)


def test_contexts_nest(pair):
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    with wrapper.accumulate():
        with wrapper.accumulate():
            loss_of(wrapper, x).backward()
        loss_of(wrapper, x).backward()
        assert base[0].weight.grad is None
    loss_of(wrapper, x).backward()
    plainly(bare, [x] * 3)
    assert_equal_grads(base, bare)
