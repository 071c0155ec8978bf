"""Steps under autocast: float32 weights, forward and loss in a lower precision, and float16 with a scaled loss."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from dpbench.cases.case import Case
from dpbench.cases.names import Data, Dtype, Mode
from dpbench.measure import measurement
from dpbench.measure.fairness import WrongResultError, error_against_oracle, error_of_trained
from dpbench.measure.ranks.team import Team
from dpbench.measure.session import RankPlacement, Session, open_session
from dpbench.variants.variant import Variant
from dpbench.workloads.resolve import resolve

AUTOCAST = {Dtype.AUTOCAST_BFLOAT16: torch.bfloat16, Dtype.AUTOCAST_FLOAT16: torch.float16}
COARSEST = {Dtype.AUTOCAST_BFLOAT16: 0.2, Dtype.AUTOCAST_FLOAT16: 0.03}
every_dtype = pytest.mark.parametrize("dtype", AUTOCAST)


def of(variant, dtype, mode=Mode.TRAIN, workload="mlp/tiny"):
    lanes = 1 if variant == "single" else 2
    return Case(variant=variant, workload=workload, batch=8, devices=["cpu"] * lanes, threads=1, dtype=dtype, mode=mode)


@every_dtype
@pytest.mark.parametrize(
    ("variant", "mode"),
    [
        *product(["single", "naive", "floor", "tuned"], Mode),
        *product(["tuned[loss=replicas]", "tuned[accumulate=2]"], [Mode.TRAIN]),
    ],
)
def test_a_variant_under_autocast_is_within_a_tolerance_that_is_derived(variant, dtype, mode):
    distance = error_against_oracle(open_session(of(variant, dtype, mode)))
    assert 1e-4 < distance.allowed < COARSEST[dtype]
    assert distance.is_right


def judged(variant, dtype, mode=Mode.TRAIN):
    """The distance of a variant that is no registered one."""
    workload, placement = resolve("mlp/tiny", Data.RANDOM), RankPlacement((torch.device("cpu"),) * 2)
    return error_against_oracle(Session(of("floor", dtype, mode), workload, variant, placement))


def chunked(base, devices, context):
    def forward(x):
        with context():
            return torch.cat([base(chunk) for chunk in x.chunk(len(devices))])

    return forward


@every_dtype
@pytest.mark.parametrize("mode", Mode)
def test_a_variant_that_runs_another_precision_is_a_wrong_result(dtype, mode):
    """As torch.nn.DataParallel on CUDA, which turns bfloat16 into float16, or a scheme that loses autocast."""
    other = {torch.bfloat16: torch.float16, torch.float16: torch.bfloat16}[AUTOCAST[dtype]]
    for context in (lambda: torch.autocast("cpu", other), lambda: torch.autocast("cpu", enabled=False)):
        variant = Variant(lambda base, devices, context=context: chunked(base, devices, context))
        with pytest.raises(WrongResultError, match=rf"those of the plain module are {AUTOCAST[dtype]}"):
            judged(variant, dtype, mode)


@every_dtype
def test_gradients_of_a_part_of_the_lanes_are_above_the_tolerance(dtype):
    def wrap(base, devices):
        for parameter in base.parameters():
            parameter.register_hook(lambda gradient: gradient * 0.75)
        return chunked(base, devices, lambda: torch.autocast("cpu", AUTOCAST[dtype]))

    assert not judged(Variant(wrap), dtype).is_right


@every_dtype
def test_a_trained_session_is_right(dtype):
    session = open_session(of("tuned", dtype))
    for _ in range(3):
        assert session.step().isfinite()
    assert error_of_trained(session).is_right


def test_a_case_of_which_all_steps_overflow_is_a_wrong_result(monkeypatch):
    usual = resolve("mlp/tiny", Data.RANDOM)
    endless = replace(usual, loss=lambda output, target: usual.loss(output, target) * float("inf"))
    monkeypatch.setattr(measurement, "resolve", lambda *_: endless)
    with pytest.raises(WrongResultError, match=r"skipped all \d+ steps: the gradients overflow in autocast-float16"):
        measurement.measure(of("single", Dtype.AUTOCAST_FLOAT16), 0.01, lambda _: Team())
