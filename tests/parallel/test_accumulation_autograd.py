"""``accumulate()`` with hooks, graphs of gradients and other uses of autograd."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from tests.parallel.accumulating import (
    accumulate,
    assert_equal_grads,
    batch,
    either,
    is_empty,
    loss_of,
    plainly,
    wrap,
)
from tests.parallel.models import Call
from tests.parallel.remote import take_remote_paths

SMALL = {"bucket_bytes": 100, "first_bucket_bytes": 64}


@pytest.fixture(autouse=True)
def _remote(monkeypatch):
    take_remote_paths(monkeypatch)


def test_a_tensor_hook_sees_each_step(pair):
    base, bare = pair
    wrapper = wrap(base)
    ours, theirs = [], []
    for model, seen in ((base, ours), (bare, theirs)):
        model[0].weight.register_hook(lambda grad, seen=seen: seen.append(grad.clone()) or 2 * grad)
    batches = [batch() for _ in range(3)]
    accumulate(wrapper, batches)
    plainly(bare, batches)
    assert len(ours) == 3
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    assert_equal_grads(base, bare)


def test_a_tensor_hook_registered_between_the_steps_sees_the_kept_sum(pair):
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    with wrapper.accumulate():
        loss_of(wrapper, x).backward()
    base[0].weight.register_hook(lambda grad: 2 * grad)
    loss_of(wrapper, x).backward()
    plainly(bare, [x] * 2)
    torch.testing.assert_close(base[0].weight.grad, 2 * bare[0].weight.grad, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("uses", [("first", "first"), ("first", "second"), ("second", "first")])
@pytest.mark.parametrize("coalesce", [True, False])
def test_a_post_accumulate_hook_finds_the_sum_of_the_steps_so_far(uses, coalesce):
    base = Call(either, first=nn.Linear(5, 3), second=nn.Linear(5, 3)).double()
    bare = copy.deepcopy(base)
    wrapper = wrap(base, coalesce=coalesce)
    ours, theirs = [], []
    for model, seen in ((base, ours), (bare, theirs)):
        model.first.weight.register_post_accumulate_grad_hook(lambda p, seen=seen: seen.append(p.grad))
    x = batch()
    with wrapper.accumulate():
        wrapper(x, use=uses[0]).sum().backward()
    wrapper(x, use=uses[1]).sum().backward()
    for use in uses:
        bare(x, use).sum().backward()
    sums = [grad for grad in ours if grad is not None]  # the wrapper also calls hooks of parameters that are not used
    torch.testing.assert_close(sums[-1], theirs[-1], atol=1e-12, rtol=1e-12)
    assert_equal_grads(base, bare)


def test_a_post_accumulate_hook_that_is_registered_late_finds_the_whole_sum(pair):
    base, bare = pair
    wrapper = wrap(base)
    seen = []
    x = batch()
    with wrapper.accumulate():
        loss_of(wrapper, x).backward()
    base[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    loss_of(wrapper, x).backward()
    plainly(bare, [x] * 2)
    assert_equal_grads(base, bare)
    torch.testing.assert_close(seen, [bare[0].weight.grad], atol=1e-12, rtol=1e-12)


def step_and_zero(optimizer, _):
    optimizer.step()
    optimizer.zero_grad()


def test_an_optimizer_in_backward_steps_in_each_step(pair):
    """Its hook zeroes the gradient, so nothing of that parameter may be kept."""
    for model in pair:
        for parameter in model.parameters():
            optimizer = torch.optim.SGD([parameter], lr=0.01)
            parameter.register_post_accumulate_grad_hook(partial(step_and_zero, optimizer))
    base, bare = pair
    batches = [batch() for _ in range(3)]
    accumulate(wrap(base), batches)
    plainly(bare, batches)
    for one, two in zip(base.parameters(), bare.parameters(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("is_inside", [True, False])
def test_autograd_grad_returns_its_pass_and_leaves_the_kept_sums(is_inside, pair):
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    with wrapper.accumulate():
        loss_of(wrapper, x).backward()
    if is_inside:
        with wrapper.accumulate():
            ours = torch.autograd.grad(loss_of(wrapper, x), base.parameters())
    else:
        ours = torch.autograd.grad(loss_of(wrapper, x), base.parameters())
    theirs = torch.autograd.grad(loss_of(bare, x), bare.parameters())
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    assert all(p.grad is None for p in base.parameters())
    loss_of(wrapper, x).backward()
    plainly(bare, [x] * 2)
    assert_equal_grads(base, bare)


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_backward_with_inputs_adds_to_them_alone(is_inside, count, pair):
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    with wrapper.accumulate():
        loss_of(wrapper, x).backward()
        if is_inside:
            loss_of(wrapper, x).backward(inputs=[*base.parameters()][:count])
    if not is_inside:
        loss_of(wrapper, x).backward(inputs=[*base.parameters()][:count])
    loss_of(wrapper, x).backward()
    plainly(bare, [x] * 2)
    loss_of(bare, x).backward(inputs=[*bare.parameters()][:count])
    assert_equal_grads(base, bare)


@pytest.mark.parametrize("is_inside", [True, False])
def test_create_graph(is_inside, pair):
    """A second backward through the gradients, and the kept sums of other steps."""
    base, bare = pair
    wrapper = wrap(base)
    x = batch()

    def penalty(model):
        loss = loss_of(model, x)
        grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)
        return loss + sum(grad.square().sum() for grad in grads)

    if is_inside:
        with wrapper.accumulate():
            penalty(wrapper).backward()
            loss_of(wrapper, x).backward()
        loss_of(wrapper, x).backward()
    else:
        with wrapper.accumulate():
            loss_of(wrapper, x).backward()
            loss_of(wrapper, x).backward()
        penalty(wrapper).backward()
    penalty(bare).backward()
    plainly(bare, [x] * 2)
    assert_equal_grads(base, bare)
    assert is_empty(wrapper)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("is_inside", [True, False])
def test_backward_with_create_graph(is_inside, pair):
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    with wrapper.accumulate():
        loss_of(wrapper, x).backward()
        if is_inside:
            loss_of(wrapper, x).backward(create_graph=True)
            assert base[0].weight.grad.grad_fn is not None
    loss_of(wrapper, x).backward(create_graph=not is_inside)
    plainly(bare, [x] * (3 if is_inside else 2))
    for parameter in base.parameters():
        parameter.grad = parameter.grad.detach()  # a cycle of references
    assert_equal_grads(base, bare)


def test_retain_graph_adds_each_pass(pair):
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    with wrapper.accumulate():
        loss = loss_of(wrapper, x)
        loss.backward(retain_graph=True)
        loss.backward()
    last = loss_of(wrapper, x)
    last.backward(retain_graph=True)
    last.backward()
    plainly(bare, [x] * 4)
    assert_equal_grads(base, bare)


def test_the_forward_decides_not_the_backward(pair):
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    with wrapper.accumulate():
        inside = loss_of(wrapper, x)
    inside.backward()
    assert base[0].weight.grad is None
    outside = loss_of(wrapper, x)
    with wrapper.accumulate():
        outside.backward()
    plainly(bare, [x] * 2)
    assert_equal_grads(base, bare)


def test_a_backward_over_two_forwards(pair):
    """One pass over a forward from inside and one from outside reduces both."""
    base, bare = pair
    wrapper = wrap(base, **SMALL)
    x = batch()
    with wrapper.accumulate():
        first = loss_of(wrapper, x)
    (first + loss_of(wrapper, x)).backward()
    plainly(bare, [x] * 2)
    assert_equal_grads(base, bare)
    assert is_empty(wrapper)


def test_sparse_gradients_are_added_at_once():
    def forward(self, tokens):
        return self.layer(self.embedding(tokens))

    base = Call(forward, embedding=nn.Embedding(11, 5, sparse=True), layer=nn.Linear(5, 3)).double()
    bare = copy.deepcopy(base)
    wrapper = wrap(base)
    batches = [torch.randint(11, (8, 2)) for _ in range(3)]
    with wrapper.accumulate():
        loss_of(wrapper, batches[0]).backward()
    assert base.embedding.weight.grad.is_sparse
    assert base.layer.weight.grad is None
    accumulate(wrapper, batches[1:])
    plainly(bare, batches)
    base.embedding.weight.grad = base.embedding.weight.grad.to_dense()
    bare.embedding.weight.grad = bare.embedding.weight.grad.to_dense()
    assert_equal_grads(base, bare)


def test_one_wrapper_inside_anothers_replica_reduces_at_once(pair):
    base, bare = pair
    inner = wrap(base, lanes=2)
    outer = wrap(inner, lanes=2)
    batches = [batch() for _ in range(3)]
    accumulate(outer, batches)
    plainly(bare, batches)
    assert_equal_grads(base, bare)


def test_an_inner_wrapper_whose_weights_are_no_leaves_reduces_at_once(pair):
    base, bare = pair
    inner = wrap(base, lanes=2)
    outer = wrap(inner, lanes=2)
    x = batch()
    with inner.accumulate():
        loss_of(outer, x).backward()
    plainly(bare, [x])
    assert_equal_grads(base, bare)
