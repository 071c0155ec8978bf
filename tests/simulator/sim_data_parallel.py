"""The stock wrapper on simulated devices equals the plain module on the chunks."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.parallel import comm

sim = torch.get_device_module("sim")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.ln, self.out = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.ln(self.bn(self.conv(x)).relu().mean((2, 3))))


def chunked(base, x, count, dim=0):
    """Run copies of `base` on the chunks; return the output, and sum the gradients in `base`."""
    replicas = [base, *(copy.deepcopy(base) for _ in range(count - 1))]
    chunks = x.chunk(count, dim)
    output = torch.cat([replica(chunk) for replica, chunk in zip(replicas, chunks, strict=False)], dim)
    output.pow(2).sum().backward()
    for replica in replicas[1 : len(chunks)]:
        for parameter, other in zip(base.parameters(), replica.parameters(), strict=True):
            parameter.grad = other.grad if parameter.grad is None else parameter.grad + other.grad
    return output


@pytest.mark.parametrize("batch", [8, 9, 3, 1])
@pytest.mark.parametrize("build", [Net, lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)])
def test_outputs_gradients_and_statistics_are_those_of_the_chunks(build, batch):
    torch.manual_seed(0)
    reference = build()
    x = torch.randn(batch, 3, 8, 8) if isinstance(reference, Net) else torch.randn(batch, 5, 8)
    base = copy.deepcopy(reference).to("sim:0")
    wrapper = nn.DataParallel(base)
    assert wrapper.device_ids == [0, 1, 2, 3]
    expected = chunked(reference, x, 4)
    output = wrapper(x)
    output.pow(2).sum().backward()
    torch.testing.assert_close(output.cpu(), expected, rtol=1e-4, atol=1e-5)
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(base.get_parameter(name).grad.cpu(), parameter.grad, rtol=1e-3, atol=1e-4)
    for name, buffer in reference.named_buffers():
        torch.testing.assert_close(base.get_buffer(name).cpu(), buffer)


def test_training_through_the_wrapper_with_every_kind_of_input():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, a, *, scale=None, extra=()):
            return {"y": self.layer(a), "pair": (a * scale, [a + 1]), "none": None}

    base = Mixed().to("sim:0")
    optimizer = torch.optim.SGD(base.parameters(), lr=0.1)
    for device in ("cpu", "sim:0", "sim:2"):
        a = torch.ones(6, 3, device=device)
        result = nn.DataParallel(base)(a, scale=a * 2, extra=[1, "x"])
        assert result["y"].shape == (6, 3)
        assert torch.equal(result["pair"][0].cpu(), torch.full((6, 3), 2.0))
        assert result["none"] is None
        result["y"].sum().backward()
        optimizer.step()


def test_errors_of_replicas_keep_their_type_and_place():
    class Broken(nn.Module):
        def forward(self, x):
            raise KeyError("boom")

    with pytest.raises(KeyError, match="Caught KeyError in replica 0 on device 0"):
        nn.DataParallel(Broken())(torch.ones(4, 3))


def test_sparse_gradients_stay_sparse():
    reference = nn.Embedding(10, 4, sparse=True)
    base = copy.deepcopy(reference).to("sim:0")
    indices = torch.arange(8).reshape(4, 2)
    chunked(reference, indices, 4)
    nn.DataParallel(base)(indices).pow(2).sum().backward()
    assert base.weight.grad.layout == torch.sparse_coo
    torch.testing.assert_close(base.weight.grad.to_dense().cpu(), reference.weight.grad.to_dense())


def test_dropout_is_the_same_on_every_run():
    def once():
        torch.manual_seed(0)
        return nn.DataParallel(nn.Sequential(nn.Dropout(0.5)).to("sim:0"))(torch.ones(64, 8)).cpu()

    assert torch.equal(once(), once())


@pytest.mark.parametrize("ids", [[0, 1, 2, 3], [1, 0], [0, 0]])
def test_gradcheck_and_gradgradcheck(ids):
    layer = nn.Linear(3, 2).double().to(f"sim:{ids[0]}")
    wrapper = nn.DataParallel(layer, ids)
    x = torch.randn(4, 3, dtype=torch.double, device=f"sim:{ids[0]}", requires_grad=True)
    assert torch.autograd.gradcheck(wrapper, (x,))
    assert torch.autograd.gradgradcheck(lambda x: wrapper(x).tanh(), (x,))


def test_gradcheck_of_the_parameters_through_the_wrapper():
    layer = nn.Linear(2, 2).double().to("sim:0")
    x = torch.randn(4, 2, dtype=torch.double, device="sim:0")

    def run(weight, bias):
        replicas = nn.parallel.replicate(_with(layer, weight, bias), [0, 1])
        outputs = nn.parallel.parallel_apply(replicas, nn.parallel.scatter(x, [0, 1]))
        return nn.parallel.gather(outputs, 0).tanh()

    inputs = tuple(p.detach().clone().requires_grad_() for p in (layer.weight, layer.bias))
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)


def _with(layer, weight, bias):
    other = nn.Module.__new__(nn.Linear)
    nn.Module.__init__(other)
    other.register_parameter("weight", None)
    other.register_parameter("bias", None)
    other.__dict__.update(in_features=2, out_features=2)
    other._parameters.update(weight=weight, bias=bias)
    return other


def test_broadcast_keeps_the_source_and_gives_each_copy_its_own_version():
    tensors = [
        torch.ones(2, device="sim:0"),
        torch.ones(3, device="sim:0"),
        torch.ones(2, dtype=torch.int, device="sim:0"),
    ]
    first, second = comm.broadcast_coalesced(tensors, [0, 1])
    assert all(one is other for one, other in zip(first, tensors, strict=True))
    assert [(t.device.index, t.dtype, t.shape) for t in second] == [(1, t.dtype, t.shape) for t in tensors]
    second[0].add_(1)
    assert (second[0]._version, second[1]._version) == (1, 0)
    with pytest.raises(RuntimeError, match=r"all tensors must be on devices\[0\]"):
        comm.broadcast_coalesced(tensors, [1, 0])


def test_sparse_tensors_are_broadcast_as_sparse():
    tensors = [
        torch.eye(3).to_sparse().to("sim:0"),
        torch.ones(2, device="sim:0"),
        torch.eye(2).to_sparse().to("sim:0"),
    ]
    _, second = comm.broadcast_coalesced(tensors, [0, 1])
    for one, other in zip(tensors, second, strict=True):
        assert (other.device.index, other.layout) == (1, one.layout)
        torch.testing.assert_close(other.cpu().to_dense(), one.cpu().to_dense())


def test_scatter_gives_views_where_the_chunk_is_already():
    x = torch.arange(8.0, device="sim:1")
    here, there = comm.scatter(x, [1, 2])
    assert sim.storage_id(here) == sim.storage_id(x)
    assert (there.device.index, there.tolist()) == (2, [4.0, 5.0, 6.0, 7.0])
    assert [t.numel() for t in comm.scatter(x, [0, 1], [5, 3])] == [5, 3]
    with pytest.raises(RuntimeError, match="given chunk sizes don't sum up"):
        comm.scatter(x, [0, 1], [5, 4])
    with pytest.raises(RuntimeError, match="Chunk size must be positive"):
        comm.scatter(x, [0, 1], [8, 0])


def test_gather_checks_and_keeps_the_memory_format():
    parts = [torch.ones(2, 3, 4, 5, device=f"sim:{i}").to(memory_format=torch.channels_last) for i in range(2)]
    assert comm.gather(parts, 0, 1).is_contiguous(memory_format=torch.channels_last)
    assert comm.gather(parts, -1, 0).shape == (2, 3, 4, 10)
    assert comm.gather(parts, 0, -1).device.type == "cpu"
    with pytest.raises(RuntimeError, match="sim devices, got one on cpu"):
        comm.gather([parts[0], torch.ones(2, 3, 4, 5)], 0, 0)
    with pytest.raises(RuntimeError, match="invalid size"):
        comm.gather([parts[0], torch.ones(2, 3, 4, 6, device="sim:1")], 0, 0)
