import pytest
import torch
from torch import nn

from dpbench.cases.names import Data, Family, Size
from dpbench.workloads import convnet, embedding, mlp, transformer
from dpbench.workloads.resolve import resolve


def train(name: str, data: Data, steps: int, batch: int = 32) -> list[float]:
    workload = resolve(name, data)
    torch.manual_seed(0)
    model, generator = workload.model(), torch.Generator().manual_seed(0)
    optimizer = workload.optimizer(model.parameters())
    losses = []
    for _ in range(steps):
        drawn = workload.batch(batch, generator)
        optimizer.zero_grad()
        loss = workload.loss(model(*drawn.inputs), drawn.target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", [*(f"{family}/tiny" for family in Family), "mlp/small"])
def test_the_loss_on_digits_goes_down(name):
    losses = train(name, Data.DIGITS, steps=100)
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])


@pytest.mark.parametrize("data", Data)
@pytest.mark.parametrize("family", Family)
def test_equal_seeds_draw_equal_batches_and_the_next_draw_differs(family, data):
    workload = resolve(f"{family}/tiny", data)
    first, again = (workload.batch(6, torch.Generator().manual_seed(4)) for _ in range(2))
    generator = torch.Generator().manual_seed(4)
    workload.batch(6, generator)
    second = workload.batch(6, generator)
    assert all(torch.equal(a, b) for a, b in zip(first.inputs, again.inputs, strict=True))
    assert torch.equal(first.target, again.target)
    assert not torch.equal(first.inputs[0], second.inputs[0])
    assert all(len(part) == 6 for part in (*first.inputs, first.target))


@pytest.mark.parametrize("size", Size)
def test_the_mlp_has_the_number_of_linear_layers_in_its_sizes(size):
    with torch.device("meta"):
        model = mlp.build(mlp.SIZES[size])
    assert sum(isinstance(m, nn.Linear) for m in model) == mlp.SIZES[size].layers


@pytest.mark.parametrize("size", Size)
def test_images_have_the_side_in_the_convnets_sizes(size):
    side = convnet.SIZES[size].side
    for data in Data:
        batch = resolve(f"convnet/{size}", data).batch(2, torch.Generator())
        assert batch.inputs[0].shape == (2, 3, side, side)


@pytest.mark.parametrize("size", [Size.TINY, Size.SMALL])
def test_batch_norm_works_on_a_chunk_of_one_image(size):
    workload = resolve(f"convnet/{size}", Data.RANDOM)
    assert workload.model()(*workload.batch(1, torch.Generator()).inputs).isfinite().all()


def test_the_target_is_the_next_token():
    for data in Data:
        batch = resolve("transformer/tiny", data).batch(3, torch.Generator())
        (tokens,) = batch.inputs
        assert torch.equal(tokens[:, 1:], batch.target[:, :-1])
        assert tokens.shape == (3, 32 if data is Data.RANDOM else 63)


def test_attention_is_causal():
    model = transformer.GPT2(transformer.SIZES[Size.TINY])
    tokens = torch.randint(128, (1, 8))
    changed = tokens.clone()
    changed[0, 5:] = (changed[0, 5:] + 1) % 128
    same = torch.isclose(model(tokens), model(changed)).all(2)[0]
    assert same[:5].all()
    assert not same[5:].any()


def test_the_head_shares_the_embeddings_weight():
    model = transformer.GPT2(transformer.SIZES[Size.TINY])
    assert model.lm_head.weight is model.wte.weight


@pytest.mark.parametrize("sparse", [True, False])
def test_the_tables_gradients_are_sparse_only_with_sparse(sparse):
    workload = embedding.workload(Size.TINY, Data.RANDOM, sparse=sparse)
    model = workload.model()
    batch = workload.batch(2, torch.Generator())
    workload.loss(model(*batch.inputs), batch.target).backward()
    assert all(table.weight.grad.is_sparse is sparse for table in model.tables)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("family", Family)
def test_every_family_trains_in_every_dtype(family, dtype):
    workload = resolve(f"{family}/tiny", Data.RANDOM)
    model = workload.model().to(dtype)
    batch = workload.batch(4, torch.Generator())
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in batch.inputs]
    loss = workload.loss(model(*inputs), batch.target)
    loss.backward()
    workload.optimizer(model.parameters()).step()
    assert loss.dtype is dtype
    assert all(p.isfinite().all() for p in model.parameters())
