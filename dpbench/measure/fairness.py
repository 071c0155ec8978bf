"""Compare a variant's gradients with the plain module's, run chunk by chunk: with batch norm each chunk has its own
statistics.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_leaves, tree_map

from dpbench.cases.case import Case
from dpbench.cases.names import Dtype, Mode
from dpbench.measure.sample import settle
from dpbench.measure.session import Session, build_model, device_of, draw_batch, micro_batches_of, share_of
from dpbench.workloads.workload import Batch, Workload

TOLERANCE = {Dtype.FLOAT64: 1e-9, Dtype.FLOAT32: 2e-3, Dtype.BFLOAT16: 1e-1}
"""Relative errors that rounding explains: sums run in another order, and batch norm amplifies the error."""

HOOK_TOLERANCE = {"none": 0.0, "fp16": 1e-2, "bf16": 5e-2}
"""A hook of DistributedDataParallel sends gradients with 11 or 8 significant bits."""


def tolerance_of(case: Case) -> float:
    hook = str(case.variant.values.get("hook", "none"))
    return max(TOLERANCE[case.dtype], HOOK_TOLERANCE[hook])


def error_against_oracle(session: Session) -> float:
    """The relative error of one step's gradients (`infer`: outputs), once the scheme is settled, as by CUDA graphs.

    The session must be new, and cannot be timed afterwards: its model has lost its dropout. All ranks must call this.
    Raises NotSettledError.
    """
    case, workload, placement = session.case, session.workload, session.placement
    oracle = build_model(case, workload, placement.devices[0])
    for model in (session.base, oracle):
        _without_dropout(model)
    batch = draw_batch(case, workload, torch.Generator().manual_seed(case.seed + 1))
    share = share_of(batch, placement)
    if case.mode is Mode.INFER:
        with torch.no_grad():
            settle(lambda: session.forward(share), session.trials_left)
            _copy_buffers(session.base, oracle)
            expected = _join(_outputs(oracle, _chunks(share, len(placement.devices))))
            return _relative_error(_tensors(session.forward(share)), _tensors(expected))
    parts = micro_batches_of(share, session.variant.micro_batches)
    settle(lambda: session.add_gradients(parts), session.trials_left)
    session.base.zero_grad()
    _copy_buffers(session.base, oracle)
    session.add_gradients(parts)
    oracle_loss(session, oracle, batch).backward()
    return _relative_error(_gradients(session.base), _gradients(oracle))


def _copy_buffers(base: nn.Module, oracle: nn.Module) -> None:
    for (_, buffer), (_, own) in zip(base.named_buffers(), oracle.named_buffers(), strict=True):
        own.copy_(_whole(buffer))


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
    """Each chunk starts with the buffers from before the first one."""
    device = next(oracle.parameters()).device
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
        if isinstance(module, _DropoutNd):
            setattr(module, "p", 0.0)  # noqa: B010  # typed as Tensor or Module by nn.Module
        elif isinstance(getattr(module, "dropout", None), float):
            setattr(module, "dropout", 0.0)  # noqa: B010  # LSTM and attention store the probability as a number
