import copy
from dataclasses import fields

import pytest
import torch
from torch import nn

from dpbench.cases.names import Family
from dpbench.cases.variants import VariantId, VariantName
from dpbench.parallel import Policy
from dpbench.parallel.policy import Dispatch
from dpbench.variants.registry import variant_of
from tests.variants.chunked import CPU, assert_same, chunked, finish, make

FAMILIES = [f"{family}/tiny" for family in Family]
SCHEMES = [VariantName.NAIVE, VariantName.FLOOR, VariantName.TUNED]


def test_every_variant_name_has_a_scheme():
    variants = {name: variant_of(VariantId(name)) for name in VariantName}
    assert {name for name, variant in variants.items() if variant.per_rank} == {VariantName.DDP, VariantName.FSDP}
    sequential = {name for name, variant in variants.items() if not variant.concurrent_lanes}
    assert sequential == {VariantName.SINGLE, VariantName.FLOOR}
    compiled = {name: variant_of(VariantId(f"{name}[compile=default]")) for name in VariantName}
    assert {name for name, variant in compiled.items() if variant.concurrent_lanes} == {
        VariantName.DDP,
        VariantName.FSDP,
    }


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("batch", "lanes"), [(8, 4), (9, 4), (2, 4), (1, 2), (5, 1)])
@pytest.mark.parametrize("name", FAMILIES)
def test_two_steps_equal_the_plain_module_on_chunks(scheme, name, batch, lanes):
    workload, base, drawn = make(name, batch)
    forward = variant_of(VariantId(scheme)).wrap(base, [CPU] * lanes)
    optimizer = workload.optimizer(base.parameters())
    for _ in range(2):
        expected = chunked(workload, base, drawn, lanes)
        optimizer.zero_grad()
        step = finish(workload, base, forward(*drawn.inputs), drawn.target)
        # The floor runs the base itself, so batch norm sees every chunk.
        assert_same(step, expected, buffers=scheme is not VariantName.FLOOR)
        optimizer.step()


@pytest.mark.parametrize("name", FAMILIES)
def test_single_is_the_plain_module_on_the_whole_batch(name):
    workload, base, drawn = make(name, 6)
    expected = chunked(workload, base, drawn, 1)
    forward = variant_of(VariantId(VariantName.SINGLE)).wrap(base, [CPU])
    assert_same(finish(workload, base, forward(*drawn.inputs), drawn.target), expected)


def test_the_floors_batch_norm_sees_every_chunk():
    _, base, drawn = make("convnet/tiny", 6)
    plain = copy.deepcopy(base)
    variant_of(VariantId(VariantName.FLOOR)).wrap(base, [CPU] * 3)(*drawn.inputs)
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
        output = variant_of(VariantId(scheme)).wrap(base, [CPU] * 3)(*drawn.inputs)
        torch.testing.assert_close(output, base(*drawn.inputs))
    assert not output.requires_grad


def test_the_stock_wrapper_is_refused_on_cpu_lanes():
    with pytest.raises(ValueError, match=r"^devices: 'cpu\+cpu' has CPU lanes"):
        variant_of(VariantId(VariantName.TORCH_DP)).wrap(nn.Linear(2, 2), [CPU, CPU])


def test_the_parameters_of_tuned_are_the_fields_of_the_policy() -> None:
    assert set(VariantName.TUNED.parameters) == {f.name for f in fields(Policy)} - {"shares"} | {
        "accumulate",
        "compile",
        "loss",
    }
    for name, parameter in VariantName.TUNED.parameters.items():
        default = getattr(Policy(), name, None)
        if "|" not in parameter.allowed and name != "dispatch" and default is not None:
            assert parameter.parse(str(default).lower()) == default
    assert VariantName.TUNED.parameters["dispatch"].allowed == ", ".join(Dispatch)


def test_parameters_reach_the_wrapper() -> None:
    given = VariantId("tuned[dispatch=threads, bucket_bytes=1MiB]")
    policy = variant_of(given).wrap(nn.Linear(2, 2), [CPU, CPU]).policy
    assert policy == Policy(dispatch="threads", bucket_bytes=2**20)
    both = variant_of(VariantId("tuned[coalesce=false, skip_unchanged=true]")).wrap(nn.Linear(2, 2), [CPU, CPU]).policy
    assert both == Policy(coalesce=False, skip_unchanged=True)
