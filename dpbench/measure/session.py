"""The project's only definition of a step."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.measure.memory import settle_host_memory
from dpbench.results.counts import Phase
from dpbench.sweep.case import Case
from dpbench.sweep.names import Mode
from dpbench.variants.registry import variant_of
from dpbench.variants.variant import Variant
from dpbench.workloads.resolve import resolve
from dpbench.workloads.workload import Batch, Workload

_POOL_BATCHES = 16
_POOL_BYTES = 64 * 2**20


@dataclass(frozen=True)
class RankPlacement:
    """What one process of a case serves: all its devices, or as `rank` of `ranks` one of them."""

    devices: tuple[torch.device, ...]
    rank: int = 0
    ranks: int = 1


def _unnoticed(_: Phase) -> None:
    """The step goes from phase to phase and nobody listens."""


def placement_of(case: Case, variant: Variant, rank: int, ranks: int) -> RankPlacement:
    devices = case.devices[rank : rank + 1] if variant.per_rank else case.devices
    return RankPlacement(tuple(torch.device(device) for device in devices), rank, ranks)


class Session:
    """A case made ready to step, in one process.

    Batches wait in host memory, drawn before; carrying them to the devices is part of the step. `step` tells whoever
    asks for it as each of its phases begins. `scheme` is the variant's forward, around `base`.
    """

    def __init__(self, case: Case, workload: Workload, variant: Variant, placement: RankPlacement) -> None:
        settle_host_memory()
        self.devices = placement.devices
        self.base = build_model(case, workload, placement.devices[0])
        self.scheme = variant.wrap(self.base, list(placement.devices))
        self._loss = workload.loss
        self._optimizer = workload.optimizer(self.base.parameters())
        self._batches = cycle([share_of(batch, placement) for batch in _pool(case, workload)])
        self.step = self._train if case.mode is Mode.TRAIN else self._infer

    def _train(self, enter: Callable[[Phase], object] = _unnoticed) -> Tensor:
        """One training step; returns its loss, 0-dim, on the device of the output."""
        batch = next(self._batches)
        enter(Phase.FORWARD)
        self._optimizer.zero_grad()
        loss = self.loss(batch)
        enter(Phase.BACKWARD)
        loss.backward()
        enter(Phase.OPTIMISER)
        self._optimizer.step()
        return loss.detach()

    def _infer(self, enter: Callable[[Phase], object] = _unnoticed) -> Any:
        """One forward under no_grad; returns its output."""
        enter(Phase.FORWARD)
        with torch.no_grad():
            return self.forward(next(self._batches))

    def forward(self, batch: Batch) -> Any:
        return self.scheme(*batch.inputs)

    def loss(self, batch: Batch) -> Tensor:
        output = self.forward(batch)
        return self._loss(output, batch.target.to(device_of(output, batch.target.device), non_blocking=True))


def open_session(case: Case, rank: int = 0, ranks: int = 1) -> Session:
    """Return the session of one process of the case: all of it, or `rank` of `ranks` with one process per device."""
    variant = variant_of(case.variant)
    placement = placement_of(case, variant, rank, ranks)
    return Session(case, resolve(case.workload, case.data), variant, placement)


def build_model(case: Case, workload: Workload, device: torch.device) -> nn.Module:
    """The case's model, equal for equal seeds in every process, on `device`."""
    torch.manual_seed(case.seed)
    return workload.model().to(device=device, dtype=getattr(torch, case.dtype))


def draw_batch(case: Case, workload: Workload, generator: torch.Generator) -> Batch:
    """The next global batch in host memory, floating inputs in the case's dtype."""
    batch = workload.batch(case.batch, generator)
    dtype = getattr(torch, case.dtype)
    return Batch(tuple(t.to(dtype) if t.is_floating_point() else t for t in batch.inputs), batch.target)


def share_of(batch: Batch, placement: RankPlacement) -> Batch:
    """The placement's items of a global batch; every rank gets one at least if the batch has as many."""
    if placement.ranks == 1:
        return batch

    def share(t: Tensor) -> Tensor:
        return t.tensor_split(placement.ranks)[placement.rank].clone()

    return Batch(tuple(share(t) for t in batch.inputs), share(batch.target))


def device_of(output: Any, default: torch.device) -> torch.device:
    """The device of the first tensor in an output of tuples, lists and dicts."""
    return next((leaf.device for leaf in torch.utils._pytree.tree_leaves(output) if isinstance(leaf, Tensor)), default)


def _pool(case: Case, workload: Workload) -> list[Batch]:
    """Batches to cycle through: enough that training sees varied data, few enough to stay in memory."""
    generator = torch.Generator().manual_seed(case.seed)
    first = draw_batch(case, workload, generator)
    batch_bytes = sum(t.nbytes for t in (*first.inputs, first.target))
    count = max(1, min(_POOL_BATCHES, _POOL_BYTES // max(batch_bytes, 1)))
    return [first, *(draw_batch(case, workload, generator) for _ in range(count - 1))]
