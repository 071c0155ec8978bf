"""A step on lanes that share a GPU equals the plain module's steps on the chunks."""

import copy
from contextlib import suppress

import pytest
import torch
from torch import nn

from tests.gpu.device import DEVICE, on_host, skip_without_gpu, synchronize, wrap
from tests.parallel.models import Call, Tied, mlp, normed
from tests.parallel.oracle import Chunked, assert_grads, assert_same_step

pytestmark = pytest.mark.gpu
skip_without_gpu()


def recurrent():
    """Return an LSTM.

    With cuDNN its weights are views of one storage in the base, and not in the replicas.
    """
    return Call(lambda self, x: self.rnn(x)[0], rnn=nn.LSTM(5, 4, num_layers=2, batch_first=True))


MODELS = {
    "mlp": (mlp, lambda batch: torch.randn(batch, 5)),
    "batch norm": (normed, lambda batch: torch.randn(batch, 5)),
    "tied": (Tied, lambda batch: torch.randint(11, (batch, 3))),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), lambda n: torch.randn(n, 6, 8)),
    "recurrent": (recurrent, lambda batch: torch.randn(batch, 6, 5)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), lambda n: torch.randn(n, 3, 6, 6)),
}


def here(tensor):
    """Return the tensor on the device, in float64: the order of sums and TF32 do not show."""
    return tensor.to(DEVICE, torch.float64 if tensor.is_floating_point() else None)


def on_device(make):
    return lambda: make().double().to(DEVICE)


def dense_grads(base):
    return {name: parameter.grad.to_dense() for name, parameter in base.named_parameters()}


@pytest.mark.parametrize("bucket_bytes", [10 << 20, 64], ids=["one bucket", "many buckets"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_outputs_and_buffers(name, bucket_bytes, lanes, dispatch):
    make, draw = MODELS[name]
    policy = {"dispatch": dispatch, "bucket_bytes": bucket_bytes, "first_bucket_bytes": 64}
    assert_same_step(on_device(make), lambda base: wrap(base, lanes, **policy), here(draw(16)), lanes=lanes)


@pytest.mark.parametrize(
    "policy",
    [
        {"overlap_broadcast": False},
        {"overlap_reduce": False},
        {"overlap_copies": False},
        {"cache_replicas": False},
        {"coalesce": False},
        {"skip_unchanged": True},
        {"host_staged": True},
    ],
    ids=str,
)
def test_every_policy(policy):
    assert_same_step(on_device(normed), lambda base: wrap(base, 4, **policy), here(torch.randn(16, 5)))


def test_a_batch_that_does_not_divide(dispatch):
    x = here(torch.randn(9, 5))
    assert_same_step(on_device(mlp), lambda base: wrap(base, 4, dispatch=dispatch), x)


@pytest.mark.parametrize("place", [torch.Tensor.cpu, on_host], ids=["pageable", "pinned"])
def test_a_batch_from_the_host(place, lanes):
    x = here(torch.randn(16, 5))
    assert_same_step(on_device(mlp), lambda base: lambda x: wrap(base, lanes)(place(x)), x, lanes=lanes)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_in_eval(name, mode, lanes, dispatch):
    make, draw = MODELS[name]
    base, x = on_device(make)().eval(), here(draw(16))
    wrapper, expected = wrap(base, lanes, dispatch=dispatch), Chunked(copy.deepcopy(base), lanes)
    with mode():
        for _ in range(3):
            torch.testing.assert_close(wrapper(x), expected(x))


def test_autocast(lanes, dispatch):
    """Both sides round alike. Only the order of the sum over lanes, in float32, may differ."""
    x = torch.randn(16, 5, device=DEVICE)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        base = assert_same_step(
            lambda: mlp().to(DEVICE), lambda base: wrap(base, lanes, dispatch=dispatch), x, lanes=lanes, atol=1e-2
        )
        assert wrap(base, lanes)(x).dtype is torch.bfloat16
    assert base[0].weight.grad.dtype is torch.float32


def test_only_the_first_chunk_updates_batch_norm(dispatch):
    norm = nn.BatchNorm1d(3, momentum=1.0).to(DEVICE)
    x = torch.cat([torch.randn(8, 3) * 12 + 7, torch.randn(8, 3) * 5 - 9]).to(DEVICE)
    wrap(norm, 2, dispatch=dispatch)(x)
    torch.testing.assert_close(norm.running_mean, x[:8].mean(0))
    torch.testing.assert_close(norm.running_var, x[:8].var(0))
    assert norm.num_batches_tracked == 1


def test_sparse_and_dense_gradients(lanes, dispatch):
    """Run several backwards: the engine clones a sparse gradient into other memory."""
    base = nn.Sequential(nn.Embedding(7, 5, sparse=True), nn.Linear(5, 3)).double().to(DEVICE)
    expected, tokens = copy.deepcopy(base), torch.tensor([1, 2, 1, 5], device=DEVICE)
    wrapper = wrap(base, lanes, dispatch=dispatch)
    for _ in range(3):
        wrapper(tokens).square().sum().backward()
        expected(tokens).square().sum().backward()
    assert base[0].weight.grad.is_sparse
    torch.testing.assert_close(dense_grads(base), dense_grads(expected))


def test_a_graph_may_be_used_twice(lanes, dispatch):
    base = on_device(mlp)()
    expected, x = copy.deepcopy(base), here(torch.randn(16, 5))
    loss = wrap(base, lanes, dispatch=dispatch)(x).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    (2 * expected(x).square().sum()).backward()
    assert_grads(base, dense_grads(expected))


def test_two_forwards_before_their_backwards(lanes, dispatch):
    base = on_device(mlp)()
    expected, (x, y) = copy.deepcopy(base), here(torch.randn(2, 16, 5))
    wrapper = wrap(base, lanes, dispatch=dispatch)
    first, second = wrapper(x).square().sum(), wrapper(y).square().sum()
    second.backward()
    first.backward()
    (expected(x).square().sum() + expected(y).square().sum()).backward()
    assert_grads(base, dense_grads(expected))


def test_the_stock_wrapper_gives_the_same():
    base = on_device(normed)()
    stock, x = copy.deepcopy(base), here(torch.randn(16, 5))
    want, got = nn.DataParallel(stock, [0, 0])(x), wrap(base, 2)(x)
    torch.testing.assert_close(got, want)
    want.square().sum().backward()
    got.square().sum().backward()
    assert_grads(base, dense_grads(stock))


def test_a_graph_capture_is_refused_in_one_clear_line():
    wrapper, x, graph = wrap(mlp().to(DEVICE), 2), torch.randn(16, 5, device=DEVICE), torch.cuda.CUDAGraph()
    synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        assert torch.cuda.is_current_stream_capturing()
        with pytest.raises(RuntimeError, match="a graph capture is not supported"):
            wrapper(x)
        with suppress(RuntimeError):  # the CUDA stand-in makes no graph
            graph.capture_end()
    assert wrapper(x).shape == (16, 3)
