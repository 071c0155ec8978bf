"""PyTorch's own tests of its wrapper, by their names, on CPU lanes."""

import copy
import gc
import io
from collections import OrderedDict

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy, data_parallel, gather, parallel_apply, replicate, scatter
from tests.parallel.models import Call, mlp

TWO = ["cpu"] * 2


def equal(wrapper, module, *args, **kwargs):
    torch.testing.assert_close(wrapper(*args, **kwargs), module(*args, **kwargs))


def test_data_parallel_buffers_requiring_grad():
    base = Call(lambda self, x: x * self.b + self.p, b=nn.Buffer(torch.randn(2, requires_grad=True)), p=None)
    base.p = nn.Parameter(torch.randn(2))
    base.double()
    base.b = base.b.detach().requires_grad_()
    wrapper = DataParallel(base, TWO)
    x = torch.randn(4, 2, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(wrapper, (x,))
    wrapper(x).sum().backward()
    torch.testing.assert_close(base.b.grad, x.detach().sum(0))


def test_data_parallel_multiple_input():
    def forward(self, x, y, z=0.0, *, scale=1.0):
        return self.inner(x * scale + y) + z

    base = Call(forward, inner=mlp())
    x, y = (torch.randn(4, 5, requires_grad=True) for _ in range(2))
    wrapper = DataParallel(base, TWO)
    for args, kwargs in [((x, y), {}), ((x, y, 2.0), {}), ((x,), {"y": y}), ((x, y), {"scale": 3.0, "z": 1.0})]:
        equal(wrapper, base, *args, **kwargs)
        grads = [torch.autograd.grad(m(*args, **kwargs).sum(), [x, y]) for m in (wrapper, base)]
        torch.testing.assert_close(*grads)


def test_data_parallel_small_back():
    base = mlp()
    equal(DataParallel(base, ["cpu"] * 8), base, torch.randn(3, 5))


def test_data_parallel_model_no_refcycles():
    gc.collect()
    DataParallel(mlp(), TWO)(torch.randn(4, 5))
    assert gc.collect() == 0


def test_data_parallel_no_grad():
    def forward(self, x):
        assert not torch.is_grad_enabled(), "grad mode in the replica"
        return self.inner(x)

    wrapper = DataParallel(Call(forward, inner=mlp()), TWO)
    with torch.no_grad():
        wrapper(torch.randn(4, 5))
    with pytest.raises(AssertionError, match="grad mode in the replica"):
        wrapper(torch.randn(4, 5))


def test_data_parallel():
    base, x = mlp(), torch.randn(4, 5, requires_grad=True)
    outs, grads = [], []
    for module in (base, lambda x: data_parallel(base, x, TWO)):
        base.zero_grad()
        outs.append(module(x))
        outs[-1].sum().backward()
        grads.append([p.grad.clone() for p in base.parameters()])
    torch.testing.assert_close(outs[0], outs[1])
    torch.testing.assert_close(grads[0], grads[1])


def test_data_parallel_nested_output():
    def forward(self, x):
        return [x, (x.sin(), x.cos(), [x.add(1)]), x, OrderedDict(a=x, b=[x.sin()]), {"c": (x,)}]

    base = Call(forward)
    out = DataParallel(base, TWO)(torch.randn(4, 2))
    assert [type(part) for part in out] == [torch.Tensor, tuple, torch.Tensor, OrderedDict, dict]
    assert type(out[1][2]) is list
    assert type(out[3]["b"]) is list
    assert type(out[4]["c"]) is tuple
    assert out[3]["b"][0].shape == (4, 2)


def test_data_parallel_nested_input():
    base = Call(lambda self, nested: nested["a"][1][0] + nested["b"])
    x, y = torch.randn(4, 2), torch.randn(4, 2)
    equal(DataParallel(base, TWO), base, {"a": (None, [x]), "b": y})


@pytest.mark.parametrize("inputs", [None, ()])
def test_data_parallel_module_zero_inputs(inputs):
    base = Call(lambda self: torch.ones(2))
    assert data_parallel(base, inputs, TWO).tolist() == [1, 1]
    assert DataParallel(base, TWO)().tolist() == [1, 1]


def test_data_parallel_device_args():
    base, x = mlp(), torch.randn(4, 5)
    cpu = torch.device("cpu")
    for device_ids, output in (([cpu, cpu], cpu), (("cpu", "cpu"), "cpu"), ([cpu, "cpu"], None)):
        torch.testing.assert_close(data_parallel(base, x, device_ids, output), base(x))


def test_data_parallel_function_deletion():
    class Penalty(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 1)

        def forward(self, x):
            (slope,) = torch.autograd.grad(self.inner(x).square().sum(), x, create_graph=True)
            return slope.square().sum(1)

    base = Penalty()
    expected = copy.deepcopy(base)
    x = torch.randn(4, 3, requires_grad=True)
    DataParallel(base, TWO)(x).mean().backward()
    expected(x).mean().backward()
    torch.testing.assert_close(base.inner.weight.grad, expected.inner.weight.grad)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scatter_and_gather_undo_each_other(dim):
    x = torch.randn(4, 4, dtype=torch.double, requires_grad=True)
    torch.testing.assert_close(gather(scatter(x, TWO, dim), "cpu", dim), x)
    assert torch.autograd.gradgradcheck(lambda x: gather(scatter(x, TWO, dim), "cpu", dim).square(), (x,))


def test_replicate():
    base, x = mlp(), torch.randn(2, 5)
    for replica in replicate(base, TWO):
        torch.testing.assert_close(replica(x), base(x))


def test_replicate_buffers():
    base = nn.BatchNorm1d(5)
    for replica in replicate(base, TWO):
        assert replica.running_mean.device == torch.device("cpu")
        torch.testing.assert_close(replica.running_var, base.running_var)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_zero_grad():
    def forward(self, x):
        self.zero_grad()
        return self.inner(x)

    with pytest.warns(UserWarning, match=r"Calling \.zero_grad\(\) from a module created with nn.DataParallel\(\)"):
        DataParallel(Call(forward, inner=mlp()), TWO)(torch.randn(4, 5))


def test_autocast(dispatch):
    class Cast(nn.Linear):
        @torch.autocast("cpu", dtype=torch.bfloat16)
        def forward(self, x):
            return super().forward(x)

    out = DataParallel(Cast(5, 2), TWO, policy=Policy(dispatch=dispatch))(torch.randn(4, 5))
    assert out.dtype == torch.bfloat16


@pytest.mark.parametrize("detach", [False, True])
def test_save_replica_module(detach):
    torch.save(replicate(mlp(), TWO, detach), io.BytesIO())


@pytest.mark.parametrize(
    "formats", [(torch.channels_last, torch.contiguous_format), (torch.contiguous_format, torch.channels_last)]
)
@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_strided_grad_layout(formats, dtype):
    base = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Conv2d(4, 2, 2)).to(dtype)
    for layer, memory_format in zip(base, formats, strict=True):
        layer.to(memory_format=memory_format)
    expected = copy.deepcopy(base)
    wrapper = DataParallel(base, TWO)
    for _ in range(2):
        x = torch.randn(4, 2, 5, 5, dtype=dtype)
        wrapper(x).square().sum().backward()
        expected(x).square().sum().backward()
        for ours, theirs in zip(base.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-4, rtol=1e-4)
            assert ours.grad.stride() == ours.stride()


@pytest.mark.parametrize("dtype", [torch.float, torch.double, torch.bfloat16])
def test_data_parallel_module(dtype):
    base = mlp().to(dtype)
    equal(DataParallel(base, TWO), base, torch.randn(4, 5, dtype=dtype))


@pytest.mark.parametrize("empty", [[], {}, ()])
def test_data_parallel_module_kwargs_only_empty(empty):
    def forward(self, input):
        return self.inner(input["data"])

    base = Call(forward, inner=mlp())
    equal(DataParallel(base, TWO), base, input={"data": torch.randn(4, 5), "unused": empty})


def test_parallel_apply_autocast(dispatch):
    layers = [nn.Linear(5, 2), nn.Linear(5, 2)]
    with torch.autocast("cpu", torch.bfloat16):
        outs = parallel_apply(layers, [torch.randn(2, 5)] * 2, None, TWO, Policy(dispatch=dispatch))
    assert [out.dtype for out in outs] == [torch.bfloat16] * 2


def test_parallel_apply_passes_exception():
    module = Call(lambda self, *args: {}["wonderful"])
    with pytest.raises(
        KeyError, match=r"Caught KeyError in replica \d on device cpu.\nOriginal Traceback[\s\S]+wonderful"
    ):
        parallel_apply(modules=(module, module), inputs=(None, None))


def test_shared_module():
    torch.manual_seed(0)
    shared = nn.Linear(3, 3)
    base = nn.Sequential(shared, nn.ReLU(), shared)
    x = torch.randn(4, 3)
    equal(DataParallel(base, TWO), base, x)


def test_tensor_sharing():
    first, second = replicate(mlp(), TWO)
    assert first[0].weight.data_ptr() != second[0].weight.data_ptr()


def test_tensor_sharing_with_forward():
    base = mlp()
    first, second = replicate(base, TWO)
    x = torch.randn(2, 5)
    before = base(x)
    with torch.no_grad():
        base[2].bias.add_(1)
    torch.testing.assert_close(first(x), before + 1)
    torch.testing.assert_close(second(x), before)
