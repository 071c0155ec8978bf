import copy
from dataclasses import fields

import pytest
import torch
from torch import nn

from dpbench.parallel import Policy
from dpbench.sweep.names import Family, VariantName
from dpbench.variants.catalog import VARIANTS
from tests.variants.chunked import CPU, assert_same, chunked, finish, make

FAMILIES = [f"{family}/tiny" for family in Family]
SCHEMES = [VariantName.NAIVE, VariantName.FLOOR, VariantName.TUNED]


def test_the_catalog_is_total():
    assert set(VARIANTS) == set(VariantName)
    assert {name for name, variant in VARIANTS.items() if variant.per_rank} == {VariantName.DDP}
    sequential = {name for name, variant in VARIANTS.items() if not variant.concurrent_lanes}
    assert sequential == {VariantName.SINGLE, VariantName.FLOOR}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("batch", "lanes"), [(8, 4), (9, 4), (2, 4), (1, 2), (5, 1)])
@pytest.mark.parametrize("name", FAMILIES)
def test_two_steps_equal_the_plain_module_on_chunks(scheme, name, batch, lanes):
    workload, base, drawn = make(name, batch)
    forward = VARIANTS[scheme].wrap(base, [CPU] * lanes)
    optimizer = workload.optimizer(base.parameters())
    for _ in range(2):
        expected = chunked(workload, base, drawn, lanes)
        optimizer.zero_grad()
        step = finish(workload, base, forward(*drawn.inputs), drawn.target)
        # The floor runs the base itself, so that batch norm sees every chunk.
        assert_same(step, expected, buffers=scheme is not VariantName.FLOOR)
        optimizer.step()


@pytest.mark.parametrize("name", FAMILIES)
def test_single_is_the_plain_module_on_the_whole_batch(name):
    workload, base, drawn = make(name, 6)
    expected = chunked(workload, base, drawn, 1)
    forward = VARIANTS[VariantName.SINGLE].wrap(base, [CPU])
    assert_same(finish(workload, base, forward(*drawn.inputs), drawn.target), expected)


def test_the_floors_batch_norm_sees_every_chunk():
    _, base, drawn = make("convnet/tiny", 6)
    plain = copy.deepcopy(base)
    VARIANTS[VariantName.FLOOR].wrap(base, [CPU] * 3)(*drawn.inputs)
    for chunk in drawn.inputs[0].chunk(3):
        plain(chunk)
    torch.testing.assert_close(dict(base.named_buffers()), dict(plain.named_buffers()))
    assert base.bn1.num_batches_tracked == 3


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", FAMILIES)
def test_inference_equals_the_plain_module(scheme, name):
    _, base, drawn = make(name, 7)
    base.eval()
    with torch.no_grad():
        output = VARIANTS[scheme].wrap(base, [CPU] * 3)(*drawn.inputs)
        torch.testing.assert_close(output, base(*drawn.inputs))
    assert not output.requires_grad


def test_the_stock_wrapper_is_refused_on_cpu_lanes_where_it_would_silently_do_nothing():
    with pytest.raises(ValueError, match=r"^devices: 'cpu\+cpu' has CPU lanes"):
        VARIANTS[VariantName.TORCH_DP].wrap(nn.Linear(2, 2), [CPU, CPU])


def test_every_technique_of_the_policy_is_a_variant_of_its_own() -> None:
    usual = Policy()
    changed = set()
    for name, variant in VARIANTS.items():
        if name.startswith("tuned_"):
            policy = variant.wrap(nn.Linear(2, 2), [CPU, CPU]).policy
            (field,) = [f.name for f in fields(Policy) if getattr(policy, f.name) != getattr(usual, f.name)]
            changed.add(field)
    sizes = {"bucket_bytes", "first_bucket_bytes"}
    assert changed == {field.name for field in fields(Policy)} - sizes
