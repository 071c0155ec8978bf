"""Forward as in stock: order of the steps, one device, no arguments, functional form."""

import threading

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy, data_parallel
from tests.parallel.models import Call, mlp

CPU = torch.device("cpu")


def test_the_device_is_checked_before_the_inputs_are_scattered():
    wrapper = DataParallel(mlp().to("meta"), ["cpu"] * 2)
    with pytest.raises(RuntimeError, match="module must have its parameters and buffers"):
        wrapper(torch.tensor(1.0))  # a 0-dim tensor cannot be chunked: that error would come later


@pytest.mark.parametrize("arguments", [(), (None,)])
def test_a_forward_without_tensors_runs(arguments):
    calls = []

    def forward(self, nothing=None):
        calls.append(nothing)
        return torch.ones(2)

    out = DataParallel(Call(forward), ["cpu"] * 2)(*arguments)
    assert len(calls) == (1 if not arguments else 2)  # without arguments on the first device only
    assert out.shape == (2 * len(calls),)


def test_all_kinds_of_arguments_get_their_gradients():
    def forward(self, x, y, z=0.0, *, scale=1.0):
        return self.inner(x * scale + y) + z

    base = Call(forward, inner=mlp())
    x, y = (torch.randn(4, 5, requires_grad=True) for _ in range(2))
    wrapper = DataParallel(base, ["cpu"] * 2)
    for args, kwargs in [((x, y), {}), ((x, y, 2.0), {}), ((x,), {"y": y}), ((x, y), {"scale": 3.0, "z": 1.0})]:
        ours, theirs = wrapper(*args, **kwargs), base(*args, **kwargs)
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(*[torch.autograd.grad(out.sum(), [x, y]) for out in (ours, theirs)])


def test_a_forward_is_a_region_of_the_profile():
    with torch.profiler.profile() as profile:
        DataParallel(mlp(), ["cpu"] * 2)(torch.randn(4, 5))
    assert [event.count for event in profile.key_averages() if event.key == "DataParallel.forward"] == [1]


ELSEWHERE = {
    "all": lambda base: base.to("meta"),
    "a new value": lambda base: setattr(base[2], "bias", nn.Parameter(torch.ones(3, device="meta"))),
    "a new parameter": lambda base: setattr(base[2], "another", nn.Parameter(torch.ones(3, device="meta"))),
    "a new buffer": lambda base: base[2].register_buffer("another", torch.ones(3, device="meta")),
    "in place": lambda base: torch.utils.swap_tensors(base[2].bias, nn.Parameter(torch.ones(3, device="meta"))),
}


@pytest.mark.parametrize("move", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_module_elsewhere_is_an_error_whatever_ran_before(lanes, move):
    base, x = mlp(), torch.randn(4, 5)
    wrapper = DataParallel(base, ["cpu"] * lanes)
    wrapper(x)
    move(base)
    for call in (wrapper, lambda x: data_parallel(base, x, ["cpu"] * lanes)):
        with pytest.raises(RuntimeError, match="found one of them on device: meta"):
            call(x)


def test_data_parallel_calls_the_replicas_as_its_policy_says():
    threads = set()
    base = Call(lambda self, x: threads.add(threading.get_ident()) or x)
    data_parallel(base, torch.randn(4, 5), ["cpu"] * 3, policy=Policy(dispatch="sequence"))
    assert threads == {threading.get_ident()}


def test_the_steps_accept_other_devices_than_the_wrappers():
    wrapper, x = DataParallel(mlp(), ["cpu"] * 3), torch.randn(10, 5)
    for lanes in (2, 5):
        assert len(wrapper.scatter((x,), {}, ["cpu"] * lanes)[0]) == lanes
        assert len(wrapper.replicate(wrapper.module, ["cpu"] * lanes)) == lanes


def test_a_table_exchanged_for_one_with_a_tensor_elsewhere_is_seen():
    wrapper = DataParallel(mlp(), ["cpu"] * 2)
    wrapper(torch.randn(4, 5))
    head = wrapper.module[2]
    former = head._parameters  # kept alive, like by code that puts it back later
    head._parameters = {**former, "bias": nn.Parameter(torch.ones(3, device="meta"))}
    with pytest.raises(RuntimeError, match="on device: meta"):
        wrapper(torch.randn(4, 5))
    head._parameters = former
    assert wrapper(torch.randn(4, 5)).shape == (4, 3)


def test_one_device_calls_the_module_itself_and_gathers_nothing():
    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        return "not a tensor"

    base = Call(forward)
    assert DataParallel(base, ["cpu"])(torch.ones(3)) == "not a tensor"
    assert base.calls == 1


def test_without_grad_replicas_have_leaves_without_a_graph():
    requires = []

    def forward(self, x):
        requires.append([p.requires_grad for p in self.parameters()])
        return self.inner(x)

    wrapper = DataParallel(Call(forward, inner=mlp()), ["cpu"] * 2)
    with torch.no_grad():
        assert not wrapper(torch.randn(4, 5)).requires_grad
    assert sorted(requires) == [[False] * 4, [True] * 4]  # the first lane has the base's parameters, as in stock


@pytest.mark.parametrize("inputs", [torch.ones(4, 5), (torch.ones(4, 5),)])
@pytest.mark.parametrize(("device_ids", "output"), [([CPU, CPU], CPU), (("cpu", "cpu"), "cpu"), ([CPU, "cpu"], None)])
def test_data_parallel_takes_a_tensor_or_a_tuple(inputs, device_ids, output):
    base = mlp()
    torch.testing.assert_close(data_parallel(base, inputs, device_ids, output), base(torch.ones(4, 5)))


@pytest.mark.parametrize("inputs", [None, ()])
def test_data_parallel_takes_no_input_at_all(inputs):
    assert data_parallel(Call(lambda self: torch.ones(2)), inputs, ["cpu"] * 2).shape == (2,)
    out = data_parallel(Call(lambda self, *, x: x), None, ["cpu"] * 2, module_kwargs={"x": torch.ones(4)})
    assert out.shape == (4,)


def test_data_parallel_is_differentiable():
    base, x = mlp(), torch.randn(6, 5)
    data_parallel(base, x, ["cpu"] * 3, dim=0).sum().backward()
    got = [p.grad for p in base.parameters()]
    base.zero_grad()
    base(x).sum().backward()
    for grad, parameter in zip(got, base.parameters(), strict=True):
        torch.testing.assert_close(grad, parameter.grad)


def test_data_parallel_cuts_and_joins_along_dim():
    seen = []
    module = Call(lambda self, x: seen.append(x.shape) or x)
    x = torch.randn(2, 6)
    torch.testing.assert_close(data_parallel(module, x, ["cpu"] * 3, dim=1), x)
    assert seen == [(2, 2)] * 3


def test_data_parallel_of_one_device_is_the_module():
    assert data_parallel(Call(lambda self, x: "as is"), torch.ones(2), ["cpu"]) == "as is"


def test_data_parallel_without_a_device_is_an_error():
    if torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    with pytest.raises(RuntimeError, match="no available devices were found"):
        data_parallel(mlp(), torch.ones(2, 5))
