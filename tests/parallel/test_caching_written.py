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


WRITES = {
    **{f"left: {name}": lambda self, left=left: self.__dict__.update(left=left(self)) for name, left in LEFT.items()},
    "a child replaced": lambda self: setattr(self, "spare", nn.Identity()),
    "a child named twice": lambda self: setattr(self, "current", self.inner[0]),
    "a child deleted": lambda self: delattr(self, "spare"),
    "a child made of others": lambda self: setattr(self, "made", nn.Sequential(self.inner, self.spare)),
    "a layer deleted": lambda self: delattr(self.deep, "1"),  # which gives the list another table of modules
    "a layer with children deleted": lambda self: delattr(self.deep, "2"),
}


def writing(write):
    def forward(self, x):
        write(self)
        assert write is not WRITES["a layer deleted"] or len(self.deep) == 2
        return self.inner(x)

    deep = nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Sequential(nn.Linear(5, 5)))
    return Call(forward, inner=mlp(), spare=nn.Linear(2, 2), deep=deep)


class Custom(Call):
    def _replicate_for_data_parallel(self):
        return super()._replicate_for_data_parallel()


def first_output(self, x):
    out = self.inner(x.unsqueeze(1))
    return out[0] if isinstance(out, tuple) else out


MODELS = {
    **{name: lambda write=write: writing(write) for name, write in WRITES.items()},
    "compiled": lambda: torch.compile(writing(WRITES["a child named twice"]), backend="eager"),
    "custom": lambda: Custom(first_output, inner=nn.Linear(5, 4)),
    "a custom child": lambda: nn.Sequential(Custom(first_output, inner=mlp())),
    "an RNN": lambda: Call(first_output, inner=nn.LSTM(5, 4, batch_first=True)),
    "an RNN in a custom module": lambda: Custom(first_output, inner=nn.LSTM(5, 4, batch_first=True)),
    "scripted": lambda: torch.jit.script(mlp()),
    "graph module": lambda: torch.fx.symbolic_trace(mlp()),
    "a graph module as a child": lambda: nn.Sequential(torch.fx.symbolic_trace(mlp())),
}


@pytest.mark.parametrize("name", MODELS)
def test_one_set_serves_all_forwards_and_keeps_nothing_of_them(name):
    wrapper, x = wrap(MODELS[name]()), torch.randn(8, 5)
    train(wrapper, 1)
    (first,) = sets_of(wrapper)
    train(wrapper, 4)
    assert sets_of(wrapper) == [first]
    assert first.is_idle()
    assert "left" not in getattr(first.claim(1)[0], "__dict__", ())  # a custom root has a placeholder
    if name not in WRITES and name != "compiled":
        torch.testing.assert_close(wrapper(x), wrapper.module(x))


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
