"""Do all variants compute the same thing? Each is held against the plain module, run chunk by chunk.

Not against the whole batch at once: with batch norm that differs, since each chunk has statistics of its own.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_leaves, tree_map

from dpbench.measure.session import RankPlacement, Session, build_model, device_of, draw_batch, share_of
from dpbench.sweep.case import Case
from dpbench.sweep.names import Dtype, Mode
from dpbench.variants.variant import Variant
from dpbench.workloads.workload import Batch, Workload

TOLERANCE = {Dtype.FLOAT64: 1e-9, Dtype.FLOAT32: 2e-3, Dtype.BFLOAT16: 1e-1}
"""The largest relative error that rounding explains: sums run in another order, and batch norm amplifies that."""


def error_against_oracle(case: Case, workload: Workload, variant: Variant, placement: RankPlacement) -> float:
    """Take one step from a fresh state; how far are its gradients (`infer`: outputs) from the oracle's?

    A collective call: every rank must make it.
    """
    session = Session(case, workload, variant, placement)
    oracle = build_model(case, workload, placement.devices[0])
    for model in (session.base, oracle):
        _without_dropout(model)
    batch = draw_batch(case, workload, torch.Generator().manual_seed(case.seed + 1))
    share = share_of(batch, placement)
    if case.mode is Mode.INFER:
        with torch.no_grad():
            expected = _join(_outputs(oracle, _chunks(share, len(placement.devices))))
            return _relative_error(_tensors(session.forward(share)), _tensors(expected))
    session.loss(share).backward()
    if variant.per_rank:
        shares = [share_of(batch, replace(placement, rank=rank)) for rank in range(placement.ranks)]
        outputs = _outputs(oracle, shares)
        losses = [_loss(workload, out, s.target) / placement.ranks for out, s in zip(outputs, shares, strict=True)]
    else:
        losses = [_loss(workload, _join(_outputs(oracle, _chunks(share, len(placement.devices)))), share.target)]
    torch.stack(losses).sum().backward()
    return _relative_error(_gradients(session.base), _gradients(oracle))


def _chunks(batch: Batch, lanes: int) -> list[Batch]:
    """As scatter cuts it: `Tensor.chunk`, which may give fewer chunks than lanes."""
    columns = [t.chunk(lanes) for t in (*batch.inputs, batch.target)]
    return [Batch(tuple(row[:-1]), row[-1]) for row in zip(*columns, strict=True)]


def _outputs(oracle: nn.Module, chunks: Iterable[Batch]) -> list[Any]:
    """Each chunk through one set of parameters, but buffers as they stood before the first."""
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
    """One dense gradient per parameter; None, for a parameter not used, counts as zeros."""
    return [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in model.parameters() if p.requires_grad]


def _tensors(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]


def _relative_error(found: list[Tensor], expected: list[Tensor]) -> float:
    """The worst tensor's distance over its norm, where tiny tensors count against a thousandth of the largest norm.

    Infinite where shapes differ or a number is not finite.
    """
    if [t.shape for t in found] != [t.shape for t in expected]:
        return float("inf")
    norms = [float(t.double().norm()) for t in expected]
    least = max(norms, default=0.0) / 1000 or 1.0
    errors = [
        float((f.double() - e.to(f.device).double()).norm()) / max(norm, least)
        for f, e, norm in zip(found, expected, norms, strict=True)
    ]
    worst = max(errors, default=0.0)
    return worst if all(error < float("inf") for error in errors) else float("inf")


def _without_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            setattr(module, "p", 0.0)  # noqa: B010  # typed as Tensor or Module by nn.Module
        elif isinstance(getattr(module, "dropout", None), float):
            setattr(module, "dropout", 0.0)  # noqa: B010  # LSTM and attention keep it as a number
