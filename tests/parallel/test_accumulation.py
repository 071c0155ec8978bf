"""``accumulate()`` gives the gradients of plain accumulation, also where steps differ or fail."""

import copy
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import nn

from tests.parallel.accumulating import (
    accumulate,
    assert_equal_grads,
    assert_next_step_is_right,
    batch,
    is_empty,
    loss_of,
    plainly,
)
from tests.parallel.models import Call
from tests.parallel.on_lanes import run_at_once, wrap
from tests.parallel.remote import take_remote_paths
from tests.sampling import sampled

ROUTES = ("star", "chain")
SMALL = {"bucket_bytes": 100, "first_bucket_bytes": 64}
STEPS = ((8, 8, 8), (8, 8, 3), (8, 8, 1), (2, 8), (1, 5, 2), (9,), (4, 4))
X = torch.randn(8, 5, dtype=torch.double, generator=torch.Generator().manual_seed(1))


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


class Run:
    """A model that takes steps: a wrapper, or the bare module, whose contexts do nothing.

    `base` is the bare module of both, and `seen` is compared at the end.
    """

    def __init__(self, model, base):
        self.model, self.base, self.seen = model, base, []
        self.is_wrapper = model is not base

    def inside(self):
        return self.model.accumulate() if self.is_wrapper else nullcontext()

    def loss(self, x=X, **options):
        return loss_of(self.model, x, **options)

    def step(self, *, is_inside=False, x=X, **options):
        with self.inside() if is_inside else nullcontext():
            loss = self.loss(x)
            loss.backward(**{name: list(value(self.base)) for name, value in options.items()})


def use_layers(*uses):
    """Steps on some of two layers: the last one outside."""

    def run(run):
        for number, use in enumerate(uses, 1):
            with run.inside() if number < len(uses) else nullcontext():
                run.loss(use=use).backward()

    return run


def freeze_for_the_last_step(run):
    run.step(is_inside=True)
    run.base[0].weight.requires_grad_(False)
    run.step()


def nest(run):
    with run.inside():
        run.step(is_inside=True)
        run.step()
        assert not run.is_wrapper or run.base[0].weight.grad is None
    run.step()


def hook_each_step(run):
    run.base[0].weight.register_hook(lambda grad: run.seen.append(grad.clone()) or 2 * grad)
    for is_inside in (True, True, False):
        run.step(is_inside=is_inside)
    assert len(run.seen) == 3


def hook_the_sum_late(run):
    run.step(is_inside=True)
    run.base[0].weight.register_post_accumulate_grad_hook(lambda p: run.seen.append(p.grad.clone()))
    run.step()


def step_in_backward(run):
    """The hook zeroes the gradient, so nothing of that parameter may be kept."""

    def step_and_zero(optimizer, _):
        optimizer.step()
        optimizer.zero_grad()

    for parameter in run.base.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.01)
        parameter.register_post_accumulate_grad_hook(partial(step_and_zero, optimizer))
    for is_inside in (True, True, False):
        run.step(is_inside=is_inside)
    run.seen += run.base.parameters()


def take_gradients(run, *, is_inside):
    """`torch.autograd.grad` returns its pass and leaves the kept sums."""
    run.step(is_inside=True)
    with run.inside() if is_inside else nullcontext():
        run.seen += torch.autograd.grad(run.loss(), run.base.parameters())
    assert not run.is_wrapper or all(p.grad is None for p in run.base.parameters())
    run.step()


def add_to_some(run, *, is_inside, count):
    run.step(is_inside=True)
    run.step(is_inside=is_inside, inputs=lambda base: [*base.parameters()][:count])
    run.step()


def penalise_gradients(run, *, is_inside):
    """A second backward through the gradients, and the kept sums of other steps."""

    def penalty():
        loss = run.loss()
        grads = torch.autograd.grad(loss, run.base.parameters(), create_graph=True)
        return loss + sum(grad.square().sum() for grad in grads)

    with run.inside():
        if is_inside:
            penalty().backward()
        run.step()
    if not is_inside:
        penalty().backward()
    run.step()


def create_graph(run, *, is_inside):
    run.step(is_inside=True)
    with run.inside():
        if is_inside:
            run.loss().backward(create_graph=True)
            assert run.base[0].weight.grad.grad_fn is not None
    run.loss().backward(create_graph=not is_inside)
    for parameter in run.base.parameters():
        parameter.grad = parameter.grad.detach()  # a cycle of references


def retain_graph(run):
    for is_inside in (True, False):
        with run.inside() if is_inside else nullcontext():
            loss = run.loss()
            loss.backward(retain_graph=True)
            loss.backward()


def backward_elsewhere(run):
    """The forward decides, not the backward."""
    with run.inside():
        inside = run.loss()
    inside.backward()
    assert not run.is_wrapper or run.base[0].weight.grad is None
    outside = run.loss()
    with run.inside():
        outside.backward()


def backward_over_two_forwards(run):
    with run.inside():
        first = run.loss()
    (first + run.loss()).backward()


def change_lanes(run):
    run.step(is_inside=True)
    for lanes, is_inside in ((2, True), (1, False), (3, False)):
        if run.is_wrapper:
            run.model.device_ids = ["cpu"] * lanes
        run.step(is_inside=is_inside)


def forward_without_grad(run):
    for is_inside in (True, False):
        with run.inside() if is_inside else nullcontext():
            with torch.no_grad():
                run.seen.append(run.model(X))
            run.step()


def use_threads(run):
    with run.inside():
        run_at_once(lambda number: run.step(x=X + number), range(7))
    assert not run.is_wrapper or run.base[0].weight.grad is None
    run.step()


def drop_by_zero_grad(run):
    run.step(is_inside=True)
    run.model.zero_grad()
    assert not run.is_wrapper or is_empty(run.model)
    run.step(is_inside=True)
    run.step()


RUNS = {
    "freeze for the last step": freeze_for_the_last_step,
    "nest": nest,
    "hook each step": hook_each_step,
    "hook the sum late": hook_the_sum_late,
    "an optimizer in backward": step_in_backward,
    "retain_graph": retain_graph,
    "backward elsewhere": backward_elsewhere,
    "backward over two forwards": backward_over_two_forwards,
    "change lanes": change_lanes,
    "forward without grad": forward_without_grad,
    "threads": use_threads,
    "zero_grad of the wrapper": drop_by_zero_grad,
}
for inside in (True, False):
    where = "inside" if inside else "outside"
    RUNS[f"autograd.grad {where}"] = partial(take_gradients, is_inside=inside)
    RUNS[f"penalty {where}"] = partial(penalise_gradients, is_inside=inside)
    RUNS[f"create_graph {where}"] = partial(create_graph, is_inside=inside)
    for count in (1, 2, 4):
        RUNS[f"inputs {where}, {count}"] = partial(add_to_some, is_inside=inside, count=count)


def assert_same_run(run, pair, **policy):
    """Assert that the wrapper's gradients, and what it has seen, equal those of the bare module."""
    base, bare = pair
    wrapper = wrap(base, **policy)
    ours, theirs = Run(wrapper, base), Run(bare, bare)
    run(ours)
    run(theirs)
    assert_equal_grads(base, bare)
    torch.testing.assert_close(ours.seen, theirs.seen, atol=1e-12, rtol=1e-12)
    assert is_empty(wrapper)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_run_gives_the_gradients_of_the_bare_module(run, pair):
    assert_same_run(run, pair)


def layers():
    forward = lambda self, x, use: self.first(x) if use == "first" else self.second(x)  # noqa: E731
    return Call(forward, first=nn.Linear(5, 3), second=nn.Linear(5, 3), never=nn.Linear(5, 3)).double()


@pytest.mark.parametrize(
    "uses", [("first", "second"), ("second", "first"), ("first", "first", "second"), ("first", "second", "second")]
)
@pytest.mark.parametrize("fields", [{}, {"coalesce": False}, SMALL], ids=str)
@pytest.mark.parametrize("route", ROUTES)
def test_parameters_used_in_some_steps_only(uses, fields, route):
    base = layers()
    assert_same_run(use_layers(*uses), (base, copy.deepcopy(base)), route=route, **fields)


@pytest.mark.parametrize("uses", [("first", "first"), ("first", "second"), ("second", "first")])
@pytest.mark.parametrize("coalesce", [True, False])
def test_a_post_accumulate_hook_finds_the_sum_of_the_steps_so_far(uses, coalesce):
    def run(run):
        seen = []
        run.base.first.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
        use_layers(*uses)(run)
        run.seen.append([grad for grad in seen if grad is not None][-1])  # hooks of unused parameters run here too

    base = layers()
    assert_same_run(run, (base, copy.deepcopy(base)), coalesce=coalesce)


def test_grad_gets_nothing_inside_and_is_added_to_at_the_end(pair):
    def run(run):
        run.step()
        before = [p.grad.clone() for p in run.base.parameters()]
        run.step(is_inside=True)
        assert not run.is_wrapper or all(map(torch.equal, [p.grad for p in run.base.parameters()], before))
        run.step()

    assert_same_run(run, pair)


def test_a_tensor_hook_registered_between_the_steps_sees_the_kept_sum(pair):
    base, bare = pair
    wrapper = wrap(base)
    with wrapper.accumulate():
        loss_of(wrapper, X).backward()
    base[0].weight.register_hook(lambda grad: 2 * grad)
    loss_of(wrapper, X).backward()
    plainly(bare, [X] * 2)
    torch.testing.assert_close(base[0].weight.grad, 2 * bare[0].weight.grad, atol=1e-12, rtol=1e-12)


def test_sparse_gradients_are_added_at_once():
    forward = lambda self, tokens: self.layer(self.embedding(tokens))  # noqa: E731
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
    assert_equal_grads(base, bare)


@pytest.mark.parametrize("is_outer", [True, False])
def test_one_wrapper_inside_anothers_replica_reduces_at_once(is_outer, pair):
    """The inner one's weights are no leaves."""
    base, bare = pair
    inner = wrap(base, lanes=2)
    outer = wrap(inner, lanes=2)
    with (outer if is_outer else inner).accumulate():
        loss_of(outer, X).backward()
    loss_of(outer, X).backward()
    plainly(bare, [X] * 2)
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
    with pytest.raises(ArithmeticError), wrapper.accumulate() if is_inside else nullcontext():
        loss_of(wrapper, batch(), fails=True).backward()
    assert is_empty(wrapper)
    assert_next_step_is_right(wrapper)


@pytest.mark.parametrize("lanes", ["on one device", "no lanes"])
def test_without_links_every_step_is_added(lanes, pair, monkeypatch):
    base, bare = pair
    if lanes == "on one device":
        monkeypatch.undo()
    wrapper = wrap(base)
    if lanes == "no lanes":
        wrapper.device_ids = []
    with wrapper.accumulate():
        loss_of(wrapper, X).backward()
    plainly(bare, [X])
    assert_equal_grads(base, bare)
    accumulate(wrapper, [X] * 2)
    plainly(bare, [X] * 2)
    assert_equal_grads(base, bare)
