"""Replicas and memory that a graph, a hook or the user still refers to are not written."""

import copy
import weakref

import pytest
import torch
from torch import nn

from tests.parallel.models import Call, mlp
from tests.parallel.on_lanes import LANES, sets_of, train, wrap
from tests.parallel.oracle import Chunked


def chunked_and_wrapped(make=mlp):
    base = make()
    return Chunked(copy.deepcopy(base), LANES), wrap(base)


def test_several_forwards_before_one_backward_each_keep_their_weights():
    expected, wrapper = chunked_and_wrapped()
    inputs = [torch.randn(8, 5) for _ in range(3)]
    results = []
    for module, base in ((expected, expected.base), (wrapper, wrapper.module)):
        losses = []
        for values in inputs:
            x = values.clone().requires_grad_()
            losses.append((module(x).square().sum(), x))
            for parameter in base.parameters():
                parameter.data.mul_(1.5)  # unseen by version counters
        sum(loss for loss, _ in losses).backward()
        results.append([x.grad for _, x in losses])
    # Only the other lanes' chunks: the first lane shares the base's memory, which was written unseen.
    for theirs, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours[2:], theirs[2:])


@pytest.mark.parametrize("retain", [False, True])
def test_a_backward_after_a_later_forward_uses_the_weights_of_its_own_forward(retain):
    base = mlp()
    wrapper, x = wrap(base), torch.randn(8, 5, requires_grad=True)
    loss = wrapper(x).tanh().sum()
    if retain:
        loss.backward(retain_graph=True)
        x.grad = None
    (want,) = torch.autograd.grad(base(x).tanh().sum(), x)
    for parameter in base.parameters():
        parameter.data.mul_(3)
    wrapper(x.detach()).sum().backward()
    loss.backward()
    torch.testing.assert_close(x.grad[2:], want[2:])


def test_weights_that_a_hook_kept_are_not_written_again():
    base, kept = mlp(), []
    handle = base[0].register_forward_hook(lambda module, *_: kept.append(module.weight.detach()))
    wrapper = wrap(base)
    train(wrapper, 1)
    handle.remove()
    values = [weight.clone() for weight in kept]
    with torch.no_grad():
        base[0].weight[:] = 0
    train(wrapper, 1)
    for weight, value in zip(kept[1:], values[1:], strict=True):
        torch.testing.assert_close(weight, value)


def test_a_shell_the_user_kept_is_neither_refreshed_nor_emptied():
    kept = []

    def forward(self, x):
        kept.append(self)
        return self.inner(x)

    wrapper = wrap(Call(forward, inner=mlp(), factor=1))
    wrapper(torch.randn(8, 5))
    wrapper.module.factor = 2
    wrapper(torch.randn(8, 5))
    assert [shell.factor for shell in kept] == [1] * LANES + [2] * LANES
    assert len({id(shell) for shell in kept}) == 2 * LANES
    assert kept[1].inner(torch.randn(2, 5)).shape == (2, 3)


KEPT_DICTS = {
    "state": lambda shell: vars(shell.inner[0]),
    "parameters": lambda shell: shell.inner[0]._parameters,
    "buffers": lambda shell: shell.inner[1]._buffers,
    "registered": lambda shell: shell.inner[2].register_buffer("own", torch.ones(1)) or shell.inner[2]._buffers,
}


@pytest.mark.parametrize("pick", KEPT_DICTS.values(), ids=KEPT_DICTS)
def test_a_dict_of_a_shell_that_the_user_kept_stays_as_it_is(pick):
    kept = []

    def forward(self, x):
        if self.is_kept:
            kept.append(pick(self))
        return self.inner(x)

    inner = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3))
    wrapper, x = wrap(Call(forward, inner=inner, is_kept=True)), torch.randn(8, 5)
    wrapper(x)
    before = [dict(items) for items in kept]
    assert all(before)
    wrapper.module.is_kept = False
    for _ in range(2):
        wrapper(x)
    for now, then in zip(kept, before, strict=True):
        assert list(now) == list(then)
        assert all(now[name] is then[name] for name in then)


def test_a_child_that_a_hook_kept_holds_its_whole_set():
    kept = []
    base = mlp()
    handle = base[2].register_forward_hook(lambda module, *_: kept.append(module))
    wrapper = wrap(base)
    wrapper(torch.randn(8, 5))
    handle.remove()
    shells = set(map(id, kept))
    base[2].mark = "new"
    wrapper(torch.randn(8, 5))
    assert all(not hasattr(module, "mark") for module in kept)
    kept.clear()
    wrapper(torch.randn(8, 5))
    assert len(shells) == LANES
    assert len(sets_of(wrapper)) == 2


def test_a_child_that_a_forward_replaced_and_the_user_kept_holds_its_set():
    kept = []

    def forward(self, x):
        kept.append(self.spare)
        self.spare = nn.Identity()
        return x

    wrapper = wrap(Call(forward, spare=nn.Linear(2, 2)))
    wrapper(torch.ones(8))
    want = kept[1].weight.clone()
    with torch.no_grad():
        wrapper.module.spare.weight.mul_(2)
    wrapper(torch.ones(8))
    torch.testing.assert_close(kept[1].weight, want)


@pytest.mark.parametrize(("caches", "seen"), [(True, [4, 4, 4]), (False, [4, 6, 8])], ids=["cached", "not cached"])
def test_a_cache_by_weak_reference_to_modules_finds_cached_ones_again(caches, seen):
    def forward(self, x):
        if self not in kept:
            kept[self] = self.weight.detach() * 2
        return x * kept[self]

    kept = weakref.WeakKeyDictionary()
    base = Call(forward, weight=nn.Parameter(torch.full((1,), 2.0)))
    wrapper = wrap(base, cache_replicas=caches)
    for expected in seen:
        assert wrapper(torch.ones(LANES)).tolist() == [expected] * LANES
        with torch.no_grad():
            base.weight.add_(1)
