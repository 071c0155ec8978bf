from dataclasses import replace

import pytest
import torch
from torch import nn

from dpbench.cases.case import Case
from dpbench.cases.names import Data, Mode
from dpbench.cases.variants import VariantId
from dpbench.measure import fairness
from dpbench.measure.fairness import (
    TOLERANCE,
    Distance,
    WrongResultError,
    error_against_oracle,
    error_of_trained,
    tolerance_of,
)
from dpbench.measure.measurement import refuse_wrong_result
from dpbench.measure.session import RankPlacement, Session, build_model, draw_batch, open_session
from dpbench.variants.registry import variant_of
from dpbench.variants.variant import Variant
from dpbench.workloads.resolve import resolve
from dpbench.workloads.workload import Workload

ALLOWED = TOLERANCE["float32"]


def max_error(computed, expected):
    return max(fairness.relative_errors(computed, expected))


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


class _Old(torch.autograd.Function):
    """The old weight in the forward; its gradient is the new weight's."""

    @staticmethod
    def forward(ctx, new, old):
        return old.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def stale_with_gradients(base, devices):
    """Keep the weights of the first step for ever, as a cache that is never renewed."""
    old = {name: p.detach().clone() for name, p in base.named_parameters()}

    def forward(x):
        weights = {name: _Old.apply(p, old[name]) for name, p in base.named_parameters()}
        return torch.cat([torch.func.functional_call(base, weights, (chunk,)) for chunk in x.chunk(len(devices))])

    return forward


def keeps_the_first_output(base, devices):
    """Of inference alone."""
    kept, forward = [], chunk_by_chunk(base, devices)

    def of_inference(x):
        kept.append(kept[0] if kept else forward(x))
        return kept[-1]

    return lambda x: forward(x) if torch.is_grad_enabled() else of_inference(x)


def wrong_without_gradients(base, devices):
    forward = chunk_by_chunk(base, devices)
    return lambda x: forward(x) * (1 if torch.is_grad_enabled() else 1.1)


def not_a_number(base, devices):
    return lambda x: base(x) * float("nan")


def error(wrap, workload="mlp/tiny", lanes=2, batch=8, trials_left=lambda _: 0, **changes):
    devices = (torch.device("cpu"),) * lanes
    case = Case(
        variant="naive",
        workload=workload if isinstance(workload, str) else "my:model",
        batch=batch,
        devices=["cpu"] * lanes,
        threads=1,
        **changes,
    )
    made = resolve(workload, Data.RANDOM) if isinstance(workload, str) else workload
    variant = Variant(wrap=wrap, trials_left=trials_left)
    return error_against_oracle(Session(case, made, variant, RankPlacement(devices))).error


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


@pytest.mark.parametrize("wrap", [averaging, stale, stale_with_gradients, wrong_without_gradients, not_a_number])
def test_another_computation_has_an_error(wrap):
    assert not error(wrap) <= ALLOWED


def test_inference_that_keeps_what_it_computed_first_has_an_error():
    assert not error(keeps_the_first_output, mode=Mode.INFER) <= ALLOWED


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad])
@pytest.mark.parametrize("rate", [1e-8, 0.01])
def test_a_scheme_that_keeps_old_weights_has_an_error_at_any_learning_rate(optimizer, rate):
    usual = resolve("mlp/tiny", Data.RANDOM)
    workload = replace(usual, optimizer=lambda parameters: optimizer(parameters, lr=rate))
    assert not error(stale_with_gradients, workload) <= ALLOWED
    assert error(chunk_by_chunk, workload) <= ALLOWED


def test_what_was_timed_is_compared_at_its_end():
    session = open_session(Case(variant="naive", workload="mlp/tiny", batch=8, devices=["cpu"] * 2, threads=1))
    session.step()
    assert error_of_trained(session).error <= ALLOWED
    session.scheme = stale(session.base, session.placement.devices)
    assert error_of_trained(session).error > ALLOWED


def test_a_model_with_dropout_is_not_compared_at_its_end():
    usual = resolve("mlp/tiny", Data.RANDOM)
    workload = replace(usual, model=lambda: nn.Sequential(usual.model(), nn.Dropout(0.5)))
    case = Case(variant="single", workload="my:model", batch=8, devices=["cpu"], threads=1)
    assert error_of_trained(open_session(case, workload=workload)).error == 0


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [0, 1])
def test_one_number_that_is_not_finite_is_an_infinite_error(wrong, place):
    expected = [torch.ones(3), torch.ones(3)]
    computed = [tensor.clone() for tensor in expected]
    computed[place][1] = wrong
    assert max_error(computed, expected) == float("inf")


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 2 * ALLOWED])
def test_an_error_above_the_tolerance_is_refused(wrong):
    case = Case(variant="naive", workload="mlp/tiny", batch=8, devices=["cpu"] * 2, threads=1)
    refuse_wrong_result(case, Distance(ALLOWED, ALLOWED))
    with pytest.raises(WrongResultError, match="away from the plain module"):
        refuse_wrong_result(case, Distance(wrong, ALLOWED))


class Settling:
    """Computes as it should in its trials. `settled` is its forward afterwards."""

    def __init__(self, base, settled):
        self.base, self.settled, self.trials = base, settled, 3

    def __call__(self, x):
        if self.trials == 0:
            return self.settled(self.base, x)
        self.trials -= 1
        return torch.cat([self.base(chunk) for chunk in x.chunk(2)])


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    ("settled", "is_right"),
    [
        (lambda base, x: torch.cat([base(chunk) for chunk in x.chunk(2)]), True),
        (lambda base, x: 1.1 * base(x), False),
    ],
)
def test_the_settled_scheme_is_compared(settled, is_right, mode):
    difference = error(
        lambda base, _: Settling(base, settled), "convnet/tiny", trials_left=lambda scheme: scheme.trials, mode=mode
    )
    assert (difference <= ALLOWED) is is_right


class TimesForwards(nn.Module):
    """Multiplies by the number of its forwards, which is a buffer, as power iteration's vectors are."""

    def __init__(self):
        super().__init__()
        self.register_buffer("forwards", torch.zeros(()))

    def forward(self, x):
        self.forwards += 1
        return x * self.forwards


def test_the_oracle_has_the_buffers_that_the_trials_left():
    plain = resolve("mlp/tiny", Data.RANDOM)
    counting = replace(plain, model=lambda: nn.Sequential(plain.model(), TimesForwards()))
    assert error(whole_batch, counting, lanes=1) <= ALLOWED
    assert error(whole_batch, counting, lanes=1, mode=Mode.INFER) <= ALLOWED


def test_with_batch_norm_the_whole_batch_at_once_is_another_computation():
    assert error(whole_batch, "convnet/tiny", lanes=1) <= ALLOWED
    assert error(whole_batch, "convnet/tiny", lanes=2) > ALLOWED


def test_synchronised_batch_norm_is_the_whole_batch_at_once():
    """The oracle of two ranks, of one micro-batch each, against the plain module on the whole batch."""
    whole, apart = (oracle_gradients("convnet/tiny", f"ddp[sync_batchnorm={value}]") for value in ("true", "false"))
    workload = resolve("convnet/tiny", Data.RANDOM)
    case = Case(variant="ddp", workload="convnet/tiny", batch=8, devices=["cpu"] * 2, threads=1)
    model = build_model(case, workload, torch.device("cpu"))
    batch = draw_batch(case, workload, torch.Generator().manual_seed(1))
    workload.loss(model(*batch.inputs), batch.target).backward()
    expected = [p.grad for p in model.parameters()]
    assert max_error(whole, expected) <= ALLOWED
    assert max_error(apart, expected) > ALLOWED


def test_the_oracle_of_micro_batches_differs_with_batch_norm_alone():
    for workload, differs in (("mlp/tiny", False), ("convnet/tiny", True)):
        one, two = (oracle_gradients(workload, f"ddp[accumulate={count}]") for count in (1, 2))
        assert (max_error(two, one) > ALLOWED) is differs


def oracle_gradients(workload, variant):
    """Return the gradients that the oracle expects of two ranks."""
    case = Case(variant=variant, workload=workload, batch=8, devices=["cpu"] * 2, threads=1)
    made = resolve(workload, Data.RANDOM)
    scheme = replace(variant_of(VariantId(variant)), wrap=lambda base, devices: base)
    session = Session(case, made, scheme, RankPlacement((torch.device("cpu"),), 0, 2))
    oracle = build_model(case, made, torch.device("cpu"))
    batch = draw_batch(case, made, torch.Generator().manual_seed(1))
    fairness.oracle_loss(session, oracle, batch).backward()
    return [p.grad for p in oracle.parameters()]


@pytest.mark.parametrize(
    ("variant", "dtype", "allowed"),
    [
        ("ddp", "float32", 2e-3),
        ("ddp[hook=none]", "float64", 1e-9),
        ("ddp[hook=fp16]", "float64", 1e-2),
        ("ddp[hook=bf16]", "float32", 5e-2),
        ("ddp[hook=fp16]", "bfloat16", 1e-1),
    ],
)
def test_a_coarser_type_on_the_way_has_a_tolerance_of_its_own(variant, dtype, allowed):
    case = Case(variant=variant, workload="mlp/tiny", batch=8, devices=["cpu"] * 2, threads=1, dtype=dtype)
    assert tolerance_of(case) == allowed


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
    assert error_against_oracle(session).error <= ALLOWED


def test_the_oracle_of_a_compiled_model_runs_eagerly():
    def wrong(graph, _):
        return lambda *inputs: [2 * output for output in graph(*inputs)]

    plain = resolve("mlp/tiny", Data.RANDOM)
    compiled = replace(plain, model=lambda: torch.compile(plain.model(), backend=wrong))
    assert error(chunk_by_chunk, compiled) > ALLOWED


AUTOCAST = ["autocast-bfloat16", "autocast-float16"]


def is_right(wrap, workload, dtype):
    devices = (torch.device("cpu"),) * 2
    case = Case(variant="naive", workload=workload, batch=8, devices=["cpu"] * 2, threads=1, dtype=dtype)
    session = Session(case, resolve(workload, Data.RANDOM), Variant(wrap=wrap), RankPlacement(devices))
    return error_against_oracle(session).is_right


@pytest.mark.parametrize("dtype", AUTOCAST)
@pytest.mark.parametrize("workload", ["mlp/tiny", "convnet/tiny"])
def test_under_autocast_rounding_is_allowed_and_another_computation_is_not(workload, dtype):
    assert is_right(chunk_by_chunk, workload, dtype)
    assert not any(is_right(wrap, workload, dtype) for wrap in (averaging, stale_with_gradients, not_a_number))


def test_under_autocast_each_tensor_has_the_tolerance_of_its_own_rounding_error():
    case = Case(variant="naive", workload="mlp/tiny", batch=8, devices=["cpu"] * 2, threads=1, dtype=AUTOCAST[0])
    exact, expected = [torch.ones(1), torch.ones(1)], [torch.tensor([1.1]), torch.tensor([1.01])]
    assert fairness._distance(case, [torch.tensor([1.4]), expected[1]], expected, exact).is_right
    assert not fairness._distance(case, [expected[0], torch.tensor([1.3])], expected, exact).is_right


@pytest.mark.parametrize(("off", "is_right"), [(0.01, True), (0.5, False)])
def test_the_rounding_of_compiled_code_is_allowed_but_no_error_of_the_compiler(off, is_right):
    """A compiled variant has the same error as the compiled plain module, whatever that is."""
    case = Case(variant="single[compile=default]", workload="mlp/tiny", batch=8, devices=["cpu"], threads=1)
    exact = [torch.ones(4)]
    compiled = [torch.full((4,), 1 + off)]
    assert not fairness._distance(case, compiled, exact, exact).is_right
    assert fairness._distance(case, compiled, exact, exact, compiled).is_right is is_right
