"""Replicas are cached, but not their state: one set of replicas serves a training loop."""

import contextlib
import gc
import weakref

import pytest
import torch
from torch import nn

from dpbench.parallel import replica_sets
from tests.parallel.models import Call, mlp
from tests.parallel.on_lanes import LANES, sets_of, train, wrap


def flats_of(wrapper):
    """Addresses of the persistent memory of all sets."""
    return [
        copy.flat.data_ptr()
        for replica_set in sets_of(wrapper)
        for bucket in replica_set._broadcast._buckets
        for copy in bucket._copies
    ]


def test_a_training_loop_uses_one_set_and_the_same_memory_throughout():
    wrapper = wrap(mlp())
    train(wrapper, 1)
    before = flats_of(wrapper)
    train(wrapper, 5)
    assert len(sets_of(wrapper)) == 1
    assert flats_of(wrapper) == before


def test_short_and_long_batches_share_a_set():
    wrapper = wrap(mlp())
    for batch in (8, 1, 5, 8):
        wrapper(torch.randn(batch, 5)).sum().backward()
    assert len(sets_of(wrapper)) == 1


def test_without_caching_nothing_is_kept():
    wrapper = wrap(mlp(), cache_replicas=False)
    train(wrapper, 2)
    assert not sets_of(wrapper)


def test_replicas_are_gone_after_the_forward():
    seen = []

    def forward(self, x):
        self.big = torch.zeros(10)
        seen.append(weakref.ref(self.big))
        return self.inner(x)

    wrapper = wrap(Call(forward, inner=mlp()))
    out = wrapper(torch.randn(8, 5))
    assert all(reference() is None for reference in seen)
    assert out.requires_grad


@pytest.mark.parametrize("is_cached", [True, False])
def test_lend_empties_the_sets_after_the_borrowers_variables_are_gone(is_cached):
    wrapper, left = wrap(mlp(), cache_replicas=is_cached), []

    def borrow(count):
        replicas = wrapper.replicate(wrapper.module, wrapper.device_ids[:count])
        for replica in replicas:
            replica.left = torch.zeros(1)
            left.append(weakref.ref(replica.left))
        return len(replicas)

    assert wrapper._replicas.sets.lend(borrow, LANES) == LANES
    assert [reference() for reference in left] == [None] * LANES
    assert all(replica_set.is_idle() for replica_set in sets_of(wrapper))


def test_a_failed_forward_holds_no_set_once_its_error_is_gone():
    def forward(self, x):
        raise KeyError

    wrapper = wrap(Call(forward, inner=mlp()))
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with contextlib.suppress(KeyError):
                wrapper(torch.randn(8, 5))
    finally:
        gc.enable()
    assert len(sets_of(wrapper)) == 1


@pytest.mark.parametrize("is_graph", [True, False])
def test_weights_put_in_the_tables_for_one_call_are_not_kept(is_graph):
    wrapper, factor = wrap(mlp()), torch.ones((), requires_grad=is_graph)
    wrapper(torch.randn(8, 5))
    model = nn.Sequential(wrapper)  # torch refuses the wrapper itself, as it refuses stock's
    weights = {name: weight.detach() * factor for name, weight in model.named_parameters()}
    alive = [weakref.ref(weight) for weight in weights.values()]
    torch.func.functional_call(model, weights, torch.randn(8, 5))
    del weights
    assert not any(reference() is not None for reference in alive)


def test_the_pool_of_sets_is_bounded():
    kept = []

    def forward(self, x):
        kept.append(self)
        return x

    wrapper = wrap(Call(forward))
    for _ in range(20):
        wrapper(torch.randn(8))
    assert len(sets_of(wrapper)) <= 8


def test_a_set_that_forwards_no_longer_need_is_let_go(monkeypatch):
    monkeypatch.setattr(replica_sets, "UNUSED_FORWARDS", 5)
    kept = []
    wrapper = wrap(Call(lambda self, x: (kept.append(self), x)[1]))

    def forwards(count, *, are_kept):
        for _ in range(count):
            wrapper(torch.randn(8))
            if not are_kept:
                kept.clear()

    forwards(3, are_kept=True)
    assert len(sets_of(wrapper)) == 3
    kept.clear()
    forwards(6, are_kept=False)
    assert len(sets_of(wrapper)) == 1
    forwards(2, are_kept=True)
    assert len(sets_of(wrapper)) == 2


def test_a_forwards_writes_to_slots_are_gone_in_the_next():
    class Slotted(nn.Module):
        __slots__ = ("cached",)

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            if not hasattr(self, "cached"):
                self.cached = self.weight.clone()
            return x * self.cached

    wrapper = wrap(Slotted())
    wrapper(torch.ones(4))
    with torch.no_grad():
        wrapper.module.weight.mul_(2)
    assert wrapper(torch.ones(4)).tolist() == [2] * 4
