import pytest
import torch
from torch import nn

from dpbench.measure.fairness import TOLERANCE, error_against_oracle
from dpbench.measure.session import RankPlacement, Session
from dpbench.sweep.case import Case
from dpbench.sweep.names import Data, Dtype
from dpbench.variants.variant import Variant
from dpbench.workloads.resolve import resolve
from dpbench.workloads.workload import Workload

ALLOWED = TOLERANCE[Dtype.FLOAT32]


def chunk_by_chunk(base, devices):
    def forward(x):
        return torch.cat([base(chunk) for chunk in x.chunk(len(devices))])

    return forward


def whole_batch(base, devices):
    return base


def averaging(base, devices):
    """Divide the gradients by the lanes, as DistributedDataParallel divides by the ranks."""
    forward = chunk_by_chunk(base, devices)
    for parameter in base.parameters():
        parameter.register_hook(lambda gradient: gradient / len(devices))
    return forward


def stale(base, devices):
    """Use weights that were copied when the variant was made."""
    weights = {name: p.detach().clone() + 0.01 for name, p in base.named_parameters()}
    return lambda x: torch.func.functional_call(base, weights, (x,)) + 0 * sum(p.sum() for p in base.parameters())


def not_a_number(base, devices):
    return lambda x: base(x) * float("nan")


def error(wrap, workload="mlp/tiny", lanes=2, batch=8, **changes):
    devices = (torch.device("cpu"),) * lanes
    case = Case(variant="naive", workload=workload, batch=batch, devices=["cpu"] * lanes, threads=1, **changes)
    made = resolve(workload, Data.RANDOM) if isinstance(workload, str) else workload
    return error_against_oracle(Session(case, made, Variant(wrap=wrap), RankPlacement(devices)))


@pytest.mark.parametrize(
    "workload", ["mlp/tiny", "convnet/tiny", "transformer/tiny", "embedding/tiny", "embedding_sparse/tiny"]
)
@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_the_plain_module_chunk_by_chunk_has_no_error(workload, lanes):
    wrap = chunk_by_chunk if not workload.startswith("embedding") else chunked_over_all_inputs
    assert error(wrap, workload, lanes) <= ALLOWED


def chunked_over_all_inputs(base, devices):
    def forward(*inputs):
        columns = [x.chunk(len(devices)) for x in inputs]
        return torch.cat([base(*row) for row in zip(*columns, strict=True)])

    return forward


@pytest.mark.parametrize("wrap", [averaging, stale, not_a_number])
def test_another_computation_has_an_error(wrap):
    assert not error(wrap) <= ALLOWED


def test_with_batch_norm_the_whole_batch_at_once_is_another_computation():
    assert error(whole_batch, "convnet/tiny", lanes=1) <= ALLOWED
    assert error(whole_batch, "convnet/tiny", lanes=2) > ALLOWED


def test_a_wrong_gradient_of_one_small_parameter_is_found():
    def loses_a_bias(base, devices):
        base[0].bias.register_hook(torch.zeros_like)
        return chunk_by_chunk(base, devices)

    assert error(loses_a_bias) > ALLOWED


def test_inference_is_compared_by_outputs():
    assert error(chunk_by_chunk, mode="infer") <= ALLOWED
    assert error(lambda base, devices: lambda x: base(x) + 1, mode="infer") > ALLOWED


def test_dropout_does_not_disturb_the_comparison():
    plain = resolve("mlp/tiny", Data.RANDOM)
    dropping = Workload(model=lambda: nn.Sequential(plain.model(), nn.Dropout(0.5)), batch=plain.batch, loss=plain.loss)
    case = Case(variant="naive", workload="my:model", batch=8, devices=["cpu"] * 2, threads=1)
    devices = (torch.device("cpu"),) * 2
    session = Session(case, dropping, Variant(wrap=chunk_by_chunk), RankPlacement(devices))
    assert error_against_oracle(session) <= ALLOWED
