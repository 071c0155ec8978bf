"""The project's only definition of a step."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.cases.case import Case
from dpbench.cases.names import Dtype, Mode
from dpbench.measure.compilation import compilations
from dpbench.measure.memory import ready_for_copies, settle_host_memory
from dpbench.records.count_record import Phase
from dpbench.records.readings import SkippedSteps
from dpbench.variants.registry import variant_of
from dpbench.variants.variant import Variant
from dpbench.workloads.resolve import resolve
from dpbench.workloads.workload import Batch, Workload, WorkloadError

_POOL_BATCHES = 16
_POOL_BYTES = 64 * 2**20


@dataclass(frozen=True)
class RankPlacement:
    """With one process per device, each rank has one device; otherwise the only rank has all."""

    devices: tuple[torch.device, ...]
    rank: int = 0
    ranks: int = 1


@dataclass(frozen=True)
class MicroBatch:
    """`weight` is its share of the process's items."""

    batch: Batch
    weight: float


class Session:
    """`base` is the model, `scheme` the variant's forward around it. Batches are drawn beforehand and wait in host
    memory, pinned for CUDA. Their copies to the devices are part of the step. `step` takes one step, of training or
    inference, and calls `enter` with each phase that begins. `scaler` is None without a scaled loss.
    """

    def __init__(self, case: Case, workload: Workload, variant: Variant, placement: RankPlacement) -> None:
        settle_host_memory()
        self.case, self.workload, self.variant, self.placement = case, workload, variant, placement
        self.base = build_model(case, workload, placement.devices[0])
        options = {"loss": workload.loss} if variant.has_loss else {}
        self.scheme = variant.wrap(self.base, list(placement.devices), **options)
        self._loss = workload.loss
        self.optimizer = workload.optimizer(self.base.parameters())
        check_autocast(case, placement.devices[0])
        self._has_autocast = case.dtype.autocast is not None
        self.scaler = self.new_scaler() if (case.dtype, case.mode) == (Dtype.AUTOCAST_FLOAT16, Mode.TRAIN) else None
        self._scaled_steps = self._updates = 0
        if self.scaler is not None:
            self.optimizer.register_step_post_hook(self._count_update)
        self._batches = cycle(_pool(case, workload, variant, placement))
        self.step = self._train if case.mode is Mode.TRAIN else self._infer
        self._compilations = compilations().count

    def trials_left(self) -> int | None:
        """Further steps that the scheme uses for trials; None if it does not say. At least one if torch has compiled
        since the last call.
        """
        with torch.set_grad_enabled(self.case.mode is Mode.TRAIN):
            left = self.variant.trials_left(self.scheme)
        before, self._compilations = self._compilations, compilations().count
        return left if before == self._compilations else max(1, left or 0)

    def _train(self, enter: Callable[[Phase], object] = lambda _: None) -> Tensor:
        """Return the loss, 0-dim, on the output's device."""
        micro_batches = next(self._batches)
        enter(Phase.FORWARD)
        self.optimizer.zero_grad()
        loss = self.add_gradients(micro_batches, enter)
        enter(Phase.OPTIMISER)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self._scaled_steps += 1
        return loss

    def _infer(self, enter: Callable[[Phase], object] = lambda _: None) -> Any:
        enter(Phase.FORWARD)
        with torch.no_grad(), self.autocast():
            return self.forward(next(self._batches)[0].batch)

    def add_gradients(
        self, micro_batches: Sequence[MicroBatch], enter: Callable[[Phase], object] = lambda _: None
    ) -> Tensor:
        """Run forward and backward of each micro-batch; return the loss of all, 0-dim, detached and not scaled.

        The last backward reduces the gradients; the caller has entered the first forward.
        """
        *earlier, last = micro_batches
        losses = []
        for micro_batch in earlier:
            assert self.variant.without_reduction is not None
            with self.variant.without_reduction(self.scheme):
                losses.append(self._add_gradients(micro_batch, enter))
            enter(Phase.FORWARD)
        loss = self._add_gradients(last, enter)
        return torch.stack([*losses, loss]).sum() if losses else loss

    def _add_gradients(self, micro_batch: MicroBatch, enter: Callable[[Phase], object]) -> Tensor:
        if self._has_autocast:
            with self.autocast():
                loss = self.loss(micro_batch.batch)
        else:  # without the four calls of a context that does nothing
            loss = self.loss(micro_batch.batch)
        if micro_batch.weight != 1.0:
            loss = loss * micro_batch.weight
        enter(Phase.BACKWARD)
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        return loss.detach()

    def autocast(self) -> AbstractContextManager[object]:
        """The context of forward and loss; backward runs outside."""
        return autocast_of(self.case, self.placement.devices[0])

    def new_scaler(self, scale: float = 2.0**16) -> torch.amp.GradScaler:
        """Ranks skip a step together: DistributedDataParallel adds their gradients before, and for a DTensor torch
        takes the largest `found_inf` of all ranks (found_inf_reduce_handler in torch/distributed/tensor/_dispatch.py).
        """
        return torch.amp.GradScaler(self.placement.devices[0].type, init_scale=scale)

    def _count_update(self, *_: object) -> None:
        self._updates += 1

    @property
    def skipped_steps(self) -> SkippedSteps | None:
        """None without a scaler, or with a fused optimizer, which skips on the device without a word to the host."""
        is_fused = getattr(self.optimizer, "_step_supports_amp_scaling", False)
        if self.scaler is None or is_fused:
            return None
        return SkippedSteps(skipped=self._scaled_steps - self._updates, steps=self._scaled_steps)

    def forward(self, batch: Batch) -> Any:
        return self.scheme(*batch.inputs)

    def loss(self, batch: Batch) -> Tensor:
        if self.variant.has_loss:
            loss: Tensor = self.scheme(*batch.inputs, batch.target).mean()
            return loss
        output = self.forward(batch)
        return self._loss(output, batch.target.to(device_of(output, batch.target.device), non_blocking=True))


def open_session(case: Case, rank: int = 0, ranks: int = 1, *, workload: Workload | None = None) -> Session:
    """Set torch's thread count before. Pass a resolved `workload`, so that a user's factory is called once.

    Raises WorkloadError.
    """
    variant = variant_of(case.variant)
    if workload is None:
        workload = resolve(case.workload, case.data)
    return Session(case, workload, variant, _placement_of(case, variant, rank, ranks))


def _placement_of(case: Case, variant: Variant, rank: int, ranks: int) -> RankPlacement:
    devices = case.devices[rank : rank + 1] if variant.per_rank else case.devices
    return RankPlacement(tuple(torch.device(device) for device in devices), rank, ranks)


def build_model(case: Case, workload: Workload, device: torch.device) -> nn.Module:
    torch.manual_seed(case.seed)
    return workload.model().to(device=device, dtype=getattr(torch, case.dtype.weights))


def draw_batch(case: Case, workload: Workload, generator: torch.Generator) -> Batch:
    """The next global batch, in host memory, with floating inputs in the weights' type."""
    return with_inputs_in(getattr(torch, case.dtype.weights), workload.batch(case.batch, generator))


def with_inputs_in(dtype: torch.dtype, batch: Batch) -> Batch:
    return Batch(tuple(t.to(dtype) if t.is_floating_point() else t for t in batch.inputs), batch.target)


def autocast_of(case: Case, device: torch.device) -> AbstractContextManager[object]:
    low = case.dtype.autocast
    return torch.autocast(device.type, getattr(torch, low)) if low else nullcontext()


def check_autocast(case: Case, device: torch.device) -> None:
    """Raise WorkloadError if torch has no such autocast: it raises RuntimeError, or warns and computes in float32."""
    try:
        with warnings.catch_warnings(action="ignore"), autocast_of(case, device):
            missing = case.dtype.autocast is not None and not torch.is_autocast_enabled(device.type)
    except RuntimeError:
        missing = True
    if missing:
        what = f"torch {torch.__version__} has no autocast to {case.dtype.autocast} for {device.type} here"
        raise WorkloadError(f"dtypes: {str(case.dtype)!r} cannot run: {what}; another dtype is allowed")


def share_of(batch: Batch, placement: RankPlacement) -> Batch:
    """The rank's items of a global batch: at least one, if there are enough."""
    if placement.ranks == 1:
        return batch

    def share(t: Tensor) -> Tensor:
        return t.tensor_split(placement.ranks)[placement.rank].clone()

    return Batch(tuple(share(t) for t in batch.inputs), share(batch.target))


def micro_batches_of(batch: Batch, count: int) -> tuple[MicroBatch, ...]:
    """`count` micro-batches, or as many as the batch has items; their weights sum to 1."""
    if count == 1:
        return (MicroBatch(batch, 1.0),)
    items = len(batch.target)
    columns = [t.tensor_split(min(count, items)) for t in (*batch.inputs, batch.target)]
    return tuple(
        MicroBatch(Batch(tuple(row[:-1]), row[-1]), len(row[-1]) / items) for row in zip(*columns, strict=True)
    )


def device_of(output: Any, default: torch.device) -> torch.device:
    """The device of the first tensor, or `default` without one."""
    return next((leaf.device for leaf in torch.utils._pytree.tree_leaves(output) if isinstance(leaf, Tensor)), default)


def _pool(case: Case, workload: Workload, variant: Variant, placement: RankPlacement) -> list[tuple[MicroBatch, ...]]:
    generator = torch.Generator().manual_seed(case.seed)
    first = draw_batch(case, workload, generator)
    batch_bytes = sum(t.nbytes for t in (*first.inputs, first.target))
    count = max(1, min(_POOL_BATCHES, _POOL_BYTES // max(batch_bytes, 1)))
    drawn = [first, *(draw_batch(case, workload, generator) for _ in range(count - 1))]
    ready = [_ready_for_copies(share_of(batch, placement), placement.devices[0]) for batch in drawn]
    return [micro_batches_of(batch, variant.micro_batches) for batch in ready]


def _ready_for_copies(batch: Batch, device: torch.device) -> Batch:
    return Batch(tuple(ready_for_copies(t, device) for t in batch.inputs), ready_for_copies(batch.target, device))
