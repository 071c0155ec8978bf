"""Compare a variant's gradients and outputs with the plain module's, run chunk by chunk: with batch norm each chunk has
its own statistics.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_leaves, tree_map

from dpbench.cases.case import Case
from dpbench.cases.names import Dtype, Mode
from dpbench.measure.sample import settle
from dpbench.measure.session import (
    MicroBatch,
    Session,
    build_model,
    device_of,
    draw_batch,
    micro_batches_of,
    share_of,
)
from dpbench.workloads.workload import Batch, Workload

TOLERANCE = {Dtype.FLOAT64: 1e-9, Dtype.FLOAT32: 2e-3, Dtype.BFLOAT16: 1e-1}
"""Relative errors that rounding explains: sums run in another order, and batch norm amplifies the error."""
ROUNDINGS = 4
"""The tolerance of autocast and of compiled code, in rounding errors of the plain module. Two results that round
differently are at most two such errors apart. Twice that, because the largest of few tensors is a rough estimate.
"""
_SCALE = 2.0**10
"""The loss scale of a comparison: smaller than GradScaler's first one, which often overflows."""

_MOST_DOUBLINGS = 30

HOOK_TOLERANCE = {"none": 0.0, "fp16": 1e-2, "bf16": 5e-2}
"""A hook of DistributedDataParallel sends gradients with 11 or 8 significant bits."""


class WrongResultError(Exception): ...


def tolerance_of(case: Case, rounding: float = 0.0) -> float:
    """`rounding` is that of the plain module in the case's precision; the table has none for autocast."""
    hook = str(case.variant.values.get("hook", "none"))
    return max(TOLERANCE.get(case.dtype, 0.0), ROUNDINGS * rounding, HOOK_TOLERANCE[hook])


def allowed_error(session: Session) -> float:
    """The largest relative error that rounding explains: from a table, or derived for autocast and compiled code.

    The derived one is from the plain eager module's gradients (`infer`: outputs), in the case's precision and in
    float64. Compiled code keeps more in registers, so it rounds no more often. All ranks must call this.
    """
    case = session.case
    if case.dtype.autocast is None and case.variant.compile_mode is None:
        return tolerance_of(case)
    (drawn,) = _shares(session, 1)
    oracle = _oracle_of(session)
    _without_dropout(oracle)
    exact = copy.deepcopy(oracle).double()
    wanted = _results_of_plain(session, exact, _in_float64(drawn), nullcontext())
    return tolerance_of(case, _relative_error(_results_of_plain(session, oracle, drawn, session.autocast()), wanted))


def error_against_oracle(session: Session, allowed: float | None = None) -> float:
    """The largest relative error of a new session: of its gradients (`infer`: outputs), before and after its weights
    change, and of a forward without gradients.

    The scheme is settled first, as by CUDA graphs. The session cannot be timed afterwards: its model has lost its
    dropout, and its weights have changed by more than `allowed`. All ranks must call this. Raises NotSettledError, and
    WrongResultError for outputs of another type than the plain module's.
    """
    change = max(0.03, 2 * (allowed_error(session) if allowed is None else allowed))
    oracle = _oracle_of(session)
    _lower_scale(session)
    for model in (session.base, oracle):
        _without_dropout(model)
    first, second, third = _shares(session, 3)
    if session.case.mode is Mode.INFER:
        with torch.no_grad(), session.autocast():
            _settle(session, lambda: session.forward(first.share))
        before = _error_of_outputs(session, oracle, first)
        with torch.no_grad():
            for parameter in session.base.parameters():
                parameter.mul_(1 + change)
        return max(before, _error_of_outputs(session, oracle, second))
    _settle(session, lambda: session.add_gradients(first.parts))
    before = _error_of_gradients(session, oracle, first)
    _train_until_changed(session, change)
    after = _error_of_gradients(session, oracle, second)
    return max(before, after, _error_of_outputs(session, oracle, third))


def error_of_trained(session: Session) -> float:
    """The relative error of the next step's gradients (`infer`: outputs) of a session that was timed.

    0 for a model with dropout, which draws its numbers by its past. All ranks must call this.
    """
    if any(map(_has_dropout, session.base.modules())):
        return 0.0
    (drawn,) = _shares(session, 1)
    _lower_scale(session)
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


def _shares(session: Session, count: int) -> list[_Drawn]:
    """New batches, which no step has seen."""
    generator = torch.Generator().manual_seed(session.case.seed + 1)
    batches = [draw_batch(session.case, session.workload, generator) for _ in range(count)]
    shares = [share_of(batch, session.placement) for batch in batches]
    return [
        _Drawn(batch, share, micro_batches_of(share, session.variant.micro_batches))
        for batch, share in zip(batches, shares, strict=True)
    ]


def _error_of_gradients(session: Session, oracle: nn.Module, drawn: _Drawn) -> float:
    for model in (session.base, oracle):
        model.zero_grad()
    _copy_weights(session.base, oracle)
    session.add_gradients(drawn.parts)
    with session.autocast():
        loss = oracle_loss(session, oracle, drawn.batch)
    session.scaled(loss).backward()
    for model in (session.base, oracle) if session.scaler is not None else ():
        _unscale(model)
    return _relative_error(_gradients(session.base), _gradients(oracle))


def _lower_scale(session: Session) -> None:
    if session.scaler is not None:
        session.scaler = session.new_scaler(_SCALE)


def _unscale(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= _SCALE


def _results_of_plain(
    session: Session, model: nn.Module, drawn: _Drawn, autocast: AbstractContextManager[object]
) -> list[Tensor]:
    """The gradients, or the outputs, of a plain module."""
    if session.case.mode is Mode.INFER:
        with torch.no_grad(), autocast:
            return _tensors(_join(_outputs(model, _chunks(drawn.share, len(session.placement.devices)))))
    model.zero_grad()
    with autocast:
        loss = oracle_loss(session, model, drawn.batch)
    (loss * _SCALE).backward()  # a power of two, so that nothing else is rounded by it
    _unscale(model)
    return _gradients(model)


def _in_float64(drawn: _Drawn) -> _Drawn:
    def exact(batch: Batch) -> Batch:
        *inputs, target = (t.double() if t.is_floating_point() else t for t in (*batch.inputs, batch.target))
        return Batch(tuple(inputs), target)

    parts = tuple(MicroBatch(exact(part.batch), part.weight) for part in drawn.parts)
    return _Drawn(exact(drawn.batch), exact(drawn.share), parts)


@torch.no_grad()
def _error_of_outputs(session: Session, oracle: nn.Module, drawn: _Drawn) -> float:
    """Of the loss, if the scheme returns no outputs; 0 for ranks that train, whose forward is the model's own."""
    if session.variant.per_rank and session.case.mode is Mode.TRAIN:
        return 0.0
    _copy_weights(session.base, oracle)
    chunks = _chunks(drawn.share, len(session.placement.devices))
    with session.autocast():
        outputs = _outputs(oracle, chunks)
        if session.variant.has_loss:
            losses = [_loss(session.workload, y, part.target) for y, part in zip(outputs, chunks, strict=True)]
            return _relative_error([session.loss(drawn.share)], [torch.stack(losses).mean()])
        computed, expected = _tensors(session.forward(drawn.share)), _tensors(_join(outputs))
    _refuse_other_types(computed, expected)
    return _relative_error(computed, expected)


def _refuse_other_types(computed: list[Tensor], expected: list[Tensor]) -> None:
    """torch.nn.DataParallel loses autocast's type on CUDA, so that bfloat16 becomes float16."""
    for one, wanted in zip(computed, expected, strict=False):
        if one.dtype != wanted.dtype:
            raise WrongResultError(f"outputs are {one.dtype}; those of the plain module are {wanted.dtype}")


def _copy_weights(base: nn.Module, oracle: nn.Module) -> None:
    """Copy parameters and buffers."""
    with torch.no_grad():
        for theirs, own_tensor in zip(
            chain(base.parameters(), base.buffers()), chain(oracle.parameters(), oracle.buffers()), strict=True
        ):
            own_tensor.copy_(_whole(theirs))


def _train_until_changed(session: Session, change: float) -> None:
    """Take optimizer steps with the gradients that there are, each with twice the learning rate of the one before.

    They end when the weights have changed by the share `change`, so that gradients of the old ones are no rounding.
    """
    for _ in range(_MOST_DOUBLINGS):
        before = [_whole(p.detach()).clone() for p in session.base.parameters()]
        session.optimizer.step()
        changed, held = 0.0, 0.0
        for old, parameter in zip(before, session.base.parameters(), strict=True):
            difference = _whole(parameter.detach()) - old
            changed += float(difference.double().square().sum())
            held += float(old[difference != 0].double().square().sum())
        if changed > (change**2) * held > 0:
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
    with torch.compiler.set_stance("force_eager"):
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


def _relative_error(computed: list[Tensor], expected: list[Tensor]) -> float:
    """The largest norm of a tensor's difference by the norm of the expected one; infinite if shapes differ or a number
    is not finite. The denominator is at least a thousandth of the largest norm, so that tiny tensors do not dominate.
    """
    if [t.shape for t in computed] != [t.shape for t in expected]:
        return float("inf")
    norms = [float(t.double().norm()) for t in expected]
    least = max(norms, default=0.0) / 1000 or 1.0
    errors = [
        float((f.double() - e.to(f.device).double()).norm()) / max(norm, least)
        for f, e, norm in zip(computed, expected, norms, strict=True)
    ]
    worst = max(errors, default=0.0)
    return worst if all(error < float("inf") for error in errors) else float("inf")


def _without_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if _has_dropout(module):
            setattr(module, "p" if isinstance(module, _DropoutNd) else "dropout", 0.0)


def _has_dropout(module: nn.Module) -> bool:
    """LSTM and attention store the probability as a number."""
    probability = module.p if isinstance(module, _DropoutNd) else getattr(module, "dropout", None)
    return isinstance(probability, float | int) and probability > 0
