"""Compare a variant's gradients and outputs with the plain module's, run chunk by chunk: with batch norm each chunk has
its own statistics.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_leaves, tree_map

from dpbench.cases.case import Case
from dpbench.cases.names import Mode
from dpbench.measure.sample import settle
from dpbench.measure.session import (
    MicroBatch,
    Session,
    build_model,
    device_of,
    draw_batch,
    micro_batches_of,
    share_of,
    with_inputs_in,
)
from dpbench.workloads.workload import Batch, Workload

TOLERANCE = {"float64": 1e-9, "float32": 2e-3, "bfloat16": 1e-1}
"""Relative errors that rounding explains, by the type of the weights: sums run in another order, and batch norm
amplifies the error. A scheme runs the plain module's own operators, so it does not round otherwise than that.
"""

ROUNDINGS = 4
"""How many rounding errors of the plain module are allowed where a scheme may round at other places, as in autocast.

Two computations that round independently are sqrt(2) errors apart. The error of one tensor, as of a bias with ten
numbers, may be three times smaller in one of the two by chance.
"""

_MOST_DOUBLINGS = 30

HOOK_TOLERANCE = {"none": 0.0, "fp16": 1e-2, "bf16": 5e-2}
"""A hook of DistributedDataParallel sends gradients with 11 or 8 significant bits."""


class WrongResultError(Exception): ...


class Distance(NamedTuple):
    """The relative error of the tensor that is furthest beyond what is allowed for it."""

    error: float
    allowed: float

    @property
    def excess(self) -> float:
        """At most 1 for a right result."""
        return self.error / self.allowed

    @property
    def is_right(self) -> bool:
        return self.error <= self.allowed


def furthest(*distances: Distance) -> Distance:
    return max(distances, key=lambda distance: distance.excess)


def tolerance_of(case: Case) -> float:
    """The least tolerance of a tensor: more is allowed where the plain module's own rounding error is larger."""
    hook = str(case.variant.values.get("hook", "none"))
    low = case.dtype.autocast
    one_rounding = torch.finfo(getattr(torch, low)).eps / 2 if low else 0.0
    return max(TOLERANCE[case.dtype.weights], HOOK_TOLERANCE[hook], ROUNDINGS * one_rounding)


def is_derived(case: Case) -> bool:
    """Whether the tolerance comes from the rounding error of the plain module, against the one in float64."""
    return case.dtype.autocast is not None or case.variant.compile_mode is not None


def error_against_oracle(session: Session) -> Distance:
    """The furthest result of a new session: of its gradients (`infer`: outputs), before and after its weights change,
    and of a forward without gradients.

    The scheme is settled first, as by CUDA graphs. The session cannot be timed afterwards: its model has lost its
    dropout, and its weights have changed much. All ranks must call this. Raises NotSettledError, and WrongResultError
    for outputs of another type than the plain module's.
    """
    oracle = _oracle_of(session)
    for model in (session.base, oracle):
        _without_dropout(model)
    first, second, third = _shares(session, 3)
    if session.case.mode is Mode.INFER:
        with torch.no_grad(), session.autocast():
            _settle(session, lambda: session.forward(first.share))
        before = _error_of_outputs(session, oracle, first)
        with torch.no_grad():
            for parameter in session.base.parameters():
                parameter.mul_(1 + _change(session))
        return furthest(before, _error_of_outputs(session, oracle, second))
    _settle(session, lambda: session.add_gradients(first.parts))
    before = _error_of_gradients(session, oracle, first)
    _train_until_changed(session)
    after = _error_of_gradients(session, oracle, second)
    return furthest(before, after, _error_of_outputs(session, oracle, third))


def error_of_trained(session: Session) -> Distance:
    """The distance of the next step's gradients (`infer`: outputs) of a session that was timed.

    0 for a model with dropout, which draws its numbers by its past. All ranks must call this.
    """
    if any(map(_has_dropout, session.base.modules())):
        return Distance(0.0, tolerance_of(session.case))
    (drawn,) = _shares(session, 1)
    error_of = _error_of_outputs if session.case.mode is Mode.INFER else _error_of_gradients
    return error_of(session, _oracle_of(session), drawn)


class _Drawn(NamedTuple):
    batch: Batch
    share: Batch
    parts: tuple[MicroBatch, ...]


def _settle(session: Session, step: Callable[[], object]) -> None:
    """Ranks have no trials and take two steps each, whatever each one compiles."""
    settle(step, (lambda: 0) if session.variant.per_rank else session.trials_left)


def _oracle_of(session: Session) -> nn.Module:
    return build_model(session.case, session.workload, session.placement.devices[0])


def _exact(session: Session, oracle: nn.Module, batch: Batch) -> tuple[nn.Module, Batch]:
    """The oracle and a batch in float64, on the host if the device has no room."""
    model = _oracle_of(session)
    _without_dropout(model)
    _copy_weights(oracle, model)
    try:
        model = model.double()
    except torch.OutOfMemoryError:
        model = model.cpu().double()
    return model, with_inputs_in(torch.float64, batch)


def _compiled(session: Session, oracle: nn.Module) -> nn.Module | None:
    """The oracle, compiled; None for a variant that is not. Its kernels round otherwise, as those of batch norm."""
    if session.case.variant.compile_mode is None:
        return None
    model = _oracle_of(session)
    _without_dropout(model)
    _copy_weights(oracle, model)
    model.compile()  # in the default mode: graphs of another one would overwrite the outputs of the chunk before
    model.runs_compiled = True  # type: ignore[assignment]
    return model


def _shares(session: Session, count: int) -> list[_Drawn]:
    """New batches, which no step has seen."""
    generator = torch.Generator().manual_seed(session.case.seed + 1)
    batches = [draw_batch(session.case, session.workload, generator) for _ in range(count)]
    shares = [share_of(batch, session.placement) for batch in batches]
    return [
        _Drawn(batch, share, micro_batches_of(share, session.variant.micro_batches))
        for batch, share in zip(batches, shares, strict=True)
    ]


def _error_of_gradients(session: Session, oracle: nn.Module, drawn: _Drawn) -> Distance:
    for model in (session.base, oracle):
        model.zero_grad()
    _copy_weights(session.base, oracle)
    scale = _scaled_backward(session, oracle, drawn.batch)
    if session.scaler is not None:
        session.scaler = session.new_scaler(scale)
    session.add_gradients(drawn.parts)
    expected = [gradient / scale for gradient in _gradients(oracle)]
    if session.scaler is not None:
        session.scaler.unscale_(session.optimizer)
    computed = _gradients(session.base)
    if not is_derived(session.case):
        return _distance(session.case, computed, expected)
    exact, batch = _exact(session, oracle, drawn.batch)
    oracle_loss(session, exact, batch).backward()
    compiled = _compiled(session, oracle)
    if compiled is not None:
        _scaled_backward(session, compiled, drawn.batch, scale)
    of_compiled = None if compiled is None else [gradient / scale for gradient in _gradients(compiled)]
    return _distance(session.case, computed, expected, _gradients(exact), of_compiled)


def _scaled_backward(session: Session, oracle: nn.Module, batch: Batch, scale: float = 2.0**16) -> float:
    """Return the scale of the loss: 1 without a scaler, else the largest from `scale` down at which the gradients are
    finite, as GradScaler finds it; or the least one, if they never are.
    """
    scale = 1.0 if session.scaler is None else scale
    while True:
        oracle.zero_grad()
        with session.autocast():
            loss = oracle_loss(session, oracle, batch)
        (loss * scale).backward()
        if scale <= 1 or all(bool(gradient.isfinite().all()) for gradient in _gradients(oracle)):
            return scale
        scale /= 2


@torch.no_grad()
def _error_of_outputs(session: Session, oracle: nn.Module, drawn: _Drawn) -> Distance:
    """Of the loss, if the scheme returns no outputs; 0 for ranks that train, whose forward is the model's own."""
    if session.variant.per_rank and session.case.mode is Mode.TRAIN:
        return Distance(0.0, tolerance_of(session.case))
    _copy_weights(session.base, oracle)
    with session.autocast():
        computed = session.loss(drawn.share) if session.variant.has_loss else session.forward(drawn.share)
        expected = _oracle_results(session, oracle, drawn.share)
    _refuse_other_types(_tensors(computed), expected)
    if not is_derived(session.case):
        return _distance(session.case, _tensors(computed), expected)
    exact, compiled = _oracle_results(session, *_exact(session, oracle, drawn.share)), _compiled(session, oracle)
    with session.autocast():
        of_compiled = None if compiled is None else _oracle_results(session, compiled, drawn.share)
    return _distance(session.case, _tensors(computed), expected, exact, of_compiled)


def _refuse_other_types(computed: list[Tensor], expected: list[Tensor]) -> None:
    """torch.nn.DataParallel loses autocast's type on CUDA, so that bfloat16 becomes float16."""
    for one, wanted in zip(computed, expected, strict=False):
        if one.dtype != wanted.dtype:
            raise WrongResultError(f"outputs are {one.dtype}; those of the plain module are {wanted.dtype}")


def _oracle_results(session: Session, oracle: nn.Module, share: Batch) -> list[Tensor]:
    """The outputs, or the loss if the scheme returns it."""
    chunks = _chunks(share, len(session.placement.devices))
    outputs = _outputs(oracle, chunks)
    if session.variant.has_loss:
        losses = [_loss(session.workload, y, part.target) for y, part in zip(outputs, chunks, strict=True)]
        return [torch.stack(losses).mean()]
    return _tensors(_join(outputs))


def _copy_weights(base: nn.Module, oracle: nn.Module) -> None:
    """Copy parameters and buffers."""
    with torch.no_grad():
        for theirs, own_tensor in zip(
            chain(base.parameters(), base.buffers()), chain(oracle.parameters(), oracle.buffers()), strict=True
        ):
            own_tensor.copy_(_whole(theirs))


def _change(session: Session) -> float:
    """The share by which weights must change, so that gradients of the old ones are no rounding error."""
    return max(0.03, 2 * tolerance_of(session.case))


def _train_until_changed(session: Session) -> None:
    """Take optimizer steps with the gradients that there are, each with twice the learning rate of the one before."""
    for _ in range(_MOST_DOUBLINGS):
        before = [_whole(p.detach()).clone() for p in session.base.parameters()]
        session.optimizer.step()
        changed, held = 0.0, 0.0
        for old, parameter in zip(before, session.base.parameters(), strict=True):
            difference = _whole(parameter.detach()) - old
            changed += float(difference.double().square().sum())
            held += float(old[difference != 0].double().square().sum())
        if changed > (_change(session) ** 2) * held > 0:
            return
        for group in session.optimizer.param_groups:
            group["lr"] = 2 * group["lr"]


def oracle_loss(session: Session, oracle: nn.Module, batch: Batch) -> Tensor:
    """The loss of a global batch, 0-dim."""
    workload, placement, count = session.workload, session.placement, session.variant.micro_batches
    if not session.variant.per_rank:
        losses = [
            _loss(workload, _join(_outputs(oracle, _chunks(part.batch, len(placement.devices)))), part.batch.target)
            * part.weight
            for part in micro_batches_of(batch, count)
        ]
        return torch.stack(losses).sum()
    ranks = [micro_batches_of(share_of(batch, replace(placement, rank=rank)), count) for rank in range(placement.ranks)]
    run = _outputs_together if session.case.variant.values.get("sync_batchnorm") else _outputs
    losses = []
    for together in zip(*ranks, strict=True):
        outputs = run(oracle, [part.batch for part in together])
        losses += [
            _loss(workload, y, part.batch.target) * part.weight for y, part in zip(outputs, together, strict=True)
        ]
    return torch.stack(losses).sum() / placement.ranks


def _outputs_together(oracle: nn.Module, chunks: Sequence[Batch]) -> list[Any]:
    """Each chunk's output, run as one batch for a synchronised batch norm."""
    joined = Batch(
        tuple(torch.cat(column) for column in zip(*(chunk.inputs for chunk in chunks), strict=True)),
        torch.cat([chunk.target for chunk in chunks]),
    )
    (output,) = _outputs(oracle, [joined])
    sizes = [len(chunk.target) for chunk in chunks]
    return [tree_map(lambda t, i=i: t.split(sizes)[i], output) for i in range(len(sizes))]


def _chunks(batch: Batch, lanes: int) -> list[Batch]:
    columns = [t.chunk(lanes) for t in (*batch.inputs, batch.target)]
    return [Batch(tuple(row[:-1]), row[-1]) for row in zip(*columns, strict=True)]


def _outputs(oracle: nn.Module, chunks: Iterable[Batch]) -> list[Any]:
    """Each chunk starts with the buffers from before the first one. A model that is compiled already runs eagerly."""
    device = next(oracle.parameters()).device
    with torch.compiler.set_stance("default" if getattr(oracle, "runs_compiled", False) else "force_eager"):
        return [
            functional_call(
                oracle, {k: b.clone() for k, b in oracle.named_buffers()}, tuple(t.to(device) for t in chunk.inputs)
            )
            for chunk in chunks
        ]


def _join(outputs: list[Any]) -> Any:
    return tree_map(lambda *parts: torch.cat(parts) if parts[0].dim() else torch.stack(parts), *outputs)


def _loss(workload: Workload, output: Any, target: Tensor) -> Tensor:
    return workload.loss(output, target.to(device_of(output, target.device)))


def _gradients(model: nn.Module) -> list[Tensor]:
    """One dense gradient for each parameter; zeros for an unused one."""
    gradients = [(p, p.grad) for p in model.parameters() if p.requires_grad]
    return [torch.zeros_like(_whole(p)) if grad is None else _whole(grad).to_dense() for p, grad in gradients]


def _whole(tensor: Tensor) -> Tensor:
    """All parts of a sharded tensor; all ranks must call this."""
    gather = getattr(tensor, "full_tensor", None)  # a DTensor has it; importing its module takes a second
    return tensor if gather is None else gather()


def _tensors(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]


def _distance(
    case: Case,
    computed: list[Tensor],
    expected: list[Tensor],
    exact: list[Tensor] | None = None,
    compiled: list[Tensor] | None = None,
) -> Distance:
    """With `exact` results, tensor by tensor: batch norm makes the rounding error of early layers a hundred times that
    of the last one, which still shows a wrong sum. `compiled` are the compiled plain module's. They allow no more than
    bfloat16 has, because a compiler that errs would else allow its own error.
    """
    least, errors = tolerance_of(case), relative_errors(computed, expected)
    roundings = [0.0] * len(errors) if exact is None else relative_errors(expected, exact)
    if exact is not None and compiled is not None:
        most = TOLERANCE["bfloat16"] / ROUNDINGS
        capped = [min(rounding, most) for rounding in relative_errors(compiled, exact)]
        roundings = list(map(max, roundings, capped))
    distances = [
        Distance(error, max(least, ROUNDINGS * rounding)) for error, rounding in zip(errors, roundings, strict=True)
    ]
    return furthest(Distance(0.0, least), *distances)


def relative_errors(computed: list[Tensor], expected: list[Tensor]) -> list[float]:
    """For each tensor the norm of the difference by the norm of the expected one; infinite if shapes differ or a number
    is not finite. The denominator is at least a thousandth of the largest norm, so that tiny tensors do not dominate.
    """
    if [t.shape for t in computed] != [t.shape for t in expected]:
        return [float("inf")] * len(expected)
    norms = [float(t.double().norm()) for t in expected]
    least = max(norms, default=0.0) / 1000 or 1.0
    errors = [
        float((f.double() - e.to(f.device).double()).norm()) / max(norm, least)
        for f, e, norm in zip(computed, expected, norms, strict=True)
    ]
    return [error if error < float("inf") else float("inf") for error in errors]


def _without_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if _has_dropout(module):
            setattr(module, "p" if isinstance(module, _DropoutNd) else "dropout", 0.0)


def _has_dropout(module: nn.Module) -> bool:
    """LSTM and attention store the probability as a number."""
    probability = module.p if isinstance(module, _DropoutNd) else getattr(module, "dropout", None)
    return isinstance(probability, float | int) and probability > 0
