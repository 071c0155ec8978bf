"""Steps under autocast: float32 weights, forward and loss in a lower precision, and float16 with a scaled loss."""

import pytest
import torch

from dpbench.cases.case import Case
from dpbench.cases.names import Data, Dtype, Mode
from dpbench.measure.fairness import WrongResultError, error_against_oracle, error_of_trained
from dpbench.measure.session import RankPlacement, Session, open_session
from dpbench.records.readings import SkippedSteps
from dpbench.variants.variant import Variant
from dpbench.workloads.resolve import resolve
from dpbench.workloads.workload import Batch, Workload, WorkloadError

AUTOCAST = {Dtype.AUTOCAST_BFLOAT16: torch.bfloat16, Dtype.AUTOCAST_FLOAT16: torch.float16}
COARSEST = {Dtype.AUTOCAST_BFLOAT16: 0.2, Dtype.AUTOCAST_FLOAT16: 0.03}
every_dtype = pytest.mark.parametrize("dtype", AUTOCAST)


def of(variant, dtype, mode=Mode.TRAIN, workload="mlp/tiny"):
    lanes = 1 if variant == "single" else 2
    return Case(variant=variant, workload=workload, batch=8, devices=["cpu"] * lanes, threads=1, dtype=dtype, mode=mode)


@every_dtype
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    "variant", ["single", "naive", "floor", "tuned", "tuned[loss=replicas]", "tuned[accumulate=2]"]
)
def test_a_variant_under_autocast_is_within_a_tolerance_that_is_derived(variant, dtype, mode):
    if "[" in variant and mode is Mode.INFER:
        return
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
def test_weights_stay_in_float32_and_outputs_do_not(dtype):
    session = open_session(of("tuned", dtype))
    loss = session.step()
    assert {parameter.dtype for parameter in session.base.parameters()} == {torch.float32}
    assert {parameter.grad.dtype for parameter in session.base.parameters()} == {torch.float32}
    with torch.no_grad(), session.autocast():
        assert session.forward(Batch((torch.randn(4, 64),), torch.zeros(4))).dtype is AUTOCAST[dtype]
    assert loss.isfinite()
    assert error_of_trained(session).is_right


def overflowing():
    usual = resolve("mlp/tiny", Data.RANDOM)
    return Workload(
        model=usual.model,
        batch=usual.batch,
        loss=lambda output, target: usual.loss(output, target) * 1e4,
        optimizer=usual.optimizer,
    )


def test_steps_that_overflow_are_skipped_and_counted():
    session = open_session(of("single", Dtype.AUTOCAST_FLOAT16), workload=overflowing())
    before = [parameter.detach().clone() for parameter in session.base.parameters()]
    session.step()
    assert session.skipped_steps == SkippedSteps(skipped=1, steps=1)
    assert all(map(torch.equal, session.base.parameters(), before))
    for _ in range(20):
        session.step()
    assert 1 < session.skipped_steps.skipped < session.skipped_steps.steps == 21
    assert open_session(of("single", Dtype.AUTOCAST_BFLOAT16)).skipped_steps is None


def test_a_machine_without_that_autocast_says_so(monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    with pytest.raises(
        WorkloadError, match=r"dtypes: 'autocast-float16' cannot run: torch .* has no autocast to float16"
    ):
        open_session(of("single", Dtype.AUTOCAST_FLOAT16))
