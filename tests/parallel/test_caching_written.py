"""Attributes that a forward leaves in its replica are gone after it, cycles included."""

import collections
import functools
import weakref

import pytest
import torch
from torch import nn

from tests.parallel.models import Call, mlp
from tests.parallel.on_lanes import LANES, sets_of, train, wrap


def closure_over(module):
    def call(x):
        return module.inner(x)

    return call


LEFT = {
    "bound method": lambda self: self.inner.forward,
    "own bound method": lambda self: self.forward,
    "list": lambda self: [self.inner, self],
    "dict of a tuple": lambda self: {"all": (self.inner, [self.inner])},
    "partial": lambda self: functools.partial(Call.forward, self),
    "closure": closure_over,
    "default": lambda self: lambda x, me=self: me.inner(x),
    "set": lambda self: {self},
    "frozenset": lambda self: frozenset([self]),
    "child": lambda self: self.inner[0],
    "module": lambda self: nn.Sequential(self.inner, nn.ModuleList([self.inner[0]])),
    "ordered dict": lambda self: collections.OrderedDict(inner=self.inner),
    "default dict": lambda self: collections.defaultdict(list, inner=[self.inner]),
    "deque": lambda self: collections.deque([self.inner]),
}


@pytest.mark.parametrize("name", LEFT)
def test_references_to_itself_in_a_replicas_attributes_do_not_keep_its_set(name):
    def forward(self, x):
        # nn.Module.__setattr__ would register a child.
        self.__dict__["left"] = LEFT[name](self)
        return self.inner(x)

    wrapper = wrap(Call(forward, inner=mlp()))
    train(wrapper, 5)
    (only,) = sets_of(wrapper)
    assert only.is_idle()
    assert not hasattr(only.claim(1)[0], "left")


@pytest.mark.parametrize("is_deep", [False, True])
def test_layers_deleted_in_a_forward_do_not_keep_its_set(is_deep):
    """Deleting gives the list another table of modules."""

    def forward(self, x):
        del self.inner[1]
        return self.inner(x)

    layers = nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Sequential(nn.Linear(5, 5)) if is_deep else nn.Linear(5, 5))
    wrapper, x = wrap(Call(forward, inner=layers)), torch.randn(8, 5)
    train(wrapper, 5)
    torch.testing.assert_close(wrapper(x), layers[2](layers[0](x)))
    (only,) = sets_of(wrapper)
    assert only.is_idle()


@pytest.mark.parametrize("pick", [lambda left: left, lambda left: left[0]], ids=["outer", "inner"])
@pytest.mark.parametrize("kind", [list, lambda parts: nn.ModuleList(map(nn.ModuleList, parts))], ids=["list", "module"])
def test_a_container_that_another_object_refers_to_keeps_its_set(kind, pick):
    kept = []

    def forward(self, x):
        self.left = kind([[self.inner]])
        if self.is_kept:
            kept.append(pick(self.left))
        return self.inner(x)

    base = Call(forward, inner=mlp(), is_kept=True)
    wrapper, x = wrap(base), torch.randn(8, 5)
    want = wrapper(x)
    base.is_kept = False
    with torch.no_grad():
        for parameter in base.parameters():
            parameter.mul_(2)
    for _ in range(3):
        wrapper(x)
    assert len(sets_of(wrapper)) == 2
    # The first replica's weights are the base's own.
    for left, chunk, then in list(zip(kept, x.chunk(LANES), want.chunk(LANES), strict=True))[1:]:
        inner = left[0] if isinstance(left[0], nn.Sequential) else left[0][0]
        torch.testing.assert_close(inner(chunk), then)


def test_a_weak_proxy_of_a_module_owns_nothing():
    kept = []

    def forward(self, x):
        if not kept:
            kept.append(nn.Sequential(self.inner))
            self.left = weakref.proxy(kept[0])
        return self.inner(x)

    wrapper = wrap(Call(forward, inner=mlp()))
    train(wrapper, 3)
    assert len(sets_of(wrapper)) == 2
    assert dict(kept[0][0].named_parameters())


class Own(nn.Sequential):
    """A custom module; its replicas are in cycles."""

    def _replicate_for_data_parallel(self):
        replica = super()._replicate_for_data_parallel()
        replica.__dict__["itself"] = [replica]
        return replica


@pytest.mark.parametrize("make", [lambda: Own(nn.Linear(5, 2)), lambda: nn.Sequential(Own(nn.Linear(5, 2)))])
def test_custom_replicas_in_cycles_keep_two_sets_at_most(make):
    wrapper = wrap(make())
    train(wrapper, 10)
    assert len(sets_of(wrapper)) <= 2


@pytest.mark.parametrize("is_root", [False, True])
def test_a_graph_module_uses_one_set(is_root):
    traced = torch.fx.symbolic_trace(mlp())
    base = traced if is_root else nn.Sequential(traced)
    wrapper, x = wrap(base), torch.randn(8, 5)
    train(wrapper, 5)
    torch.testing.assert_close(wrapper(x), base(x))
    assert len(sets_of(wrapper)) == 1


def test_a_class_that_a_forward_gave_to_a_module_is_reset():
    class Doubling(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    def forward(self, x):
        if self.is_doubling:
            self.inner.__class__ = Doubling
        return self.inner(x)

    base = Call(forward, inner=nn.Linear(5, 3), beside=nn.LSTM(2, 2), is_doubling=False)
    x = torch.randn(8, 5)
    wrapper = wrap(base)
    want = wrapper(x)
    base.is_doubling = True
    torch.testing.assert_close(wrapper(x), 2 * want)
    base.is_doubling = False
    torch.testing.assert_close(wrapper(x), want)
    assert len(sets_of(wrapper)) == 1
