"""From a name to a workload: a built-in family, or the user's own factory."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from dpbench.cases.names import Data, Family, Size, is_factory, parse_workload
from dpbench.workloads import convnet, digits, embedding, many, mlp, transformer
from dpbench.workloads.own_code import attempt, current_directory_importable, kind_of, load
from dpbench.workloads.workload import Batch, Workload, WorkloadError

FAMILIES: dict[Family, Callable[[Size, Data], Workload]] = {
    Family.MLP: mlp.workload,
    Family.CONVNET: convnet.workload,
    Family.TRANSFORMER: transformer.workload,
    Family.EMBEDDING: partial(embedding.workload, sparse=False),
    Family.EMBEDDING_SPARSE: partial(embedding.workload, sparse=True),
    Family.MANY: many.workload,
}
_WORKLOAD = f"{Workload.__module__}.{Workload.__name__}"
_BATCH = f"{Batch.__module__}.{Batch.__name__}"


def resolve(name: str, data: Data) -> Workload:
    """``family/size``, or ``package.module:factory``: a user's function without arguments that returns a `Workload`.

    Raises WorkloadError.
    """
    try:
        parse_workload(name)
    except ValueError as error:
        raise WorkloadError(f"workloads: {error}") from None
    if is_factory(name):
        return _from_factory(name, data)
    if data is Data.DIGITS:
        digits.load()
    family, _, size = name.partition("/")
    return FAMILIES[Family(family)](Size(size), data)


def _from_factory(name: str, data: Data) -> Workload:
    if data is not Data.RANDOM:
        raise WorkloadError(
            f"data: {data.value!r} is for the built-in families; {name} draws its own batches, "
            f"so only {Data.RANDOM.value!r} is allowed with it"
        )
    named, factory = f"workloads: {name!r}", name.partition(":")[2]
    with current_directory_importable():
        made = attempt(named, f"{factory}()", load(named, name))
    if not isinstance(made, Workload):
        raise WorkloadError(f"{named}: {factory}() returned {kind_of(made)}; a {_WORKLOAD} is allowed")
    return made


def check(workload: Workload, name: str) -> None:
    """Run the model's forward and loss on a batch of 2.

    Raises WorkloadError with the workload's name and the part that failed. torch's random state does not change.
    """
    named = f"workloads: {name!r}"
    with torch.random.fork_rng(devices=[]):
        model = attempt(named, "model()", workload.model)
        _require(isinstance(model, nn.Module), name, f"model() returned {kind_of(model)}; an nn.Module is allowed")
        batch = attempt(
            f"workloads: {name!r}", "batch(2, generator)", lambda: workload.batch(2, torch.Generator().manual_seed(0))
        )
        _check_batch(batch, name)
        output = attempt(named, "forward", lambda: model(*batch.inputs))
        loss = attempt(named, "loss(output, target)", lambda: workload.loss(output, batch.target))
    scalar = isinstance(loss, Tensor) and loss.dim() == 0 and loss.is_floating_point()
    _require(scalar, name, f"loss(output, target) returned {kind_of(loss)}; a 0-dim floating tensor is allowed")


def _check_batch(batch: object, name: str) -> None:
    what = "batch(2, generator) returned"
    if not isinstance(batch, Batch):
        raise WorkloadError(f"workloads: {name!r}: {what} {kind_of(batch)}; a {_BATCH} is allowed")
    _require(isinstance(batch.inputs, tuple), name, f"{what} inputs of {kind_of(batch.inputs)}; a tuple is allowed")
    for part in (*batch.inputs, batch.target):
        fits = isinstance(part, Tensor) and part.dim() > 0 and part.shape[0] == 2
        _require(fits, name, f"{what} {kind_of(part)} in a Batch; tensors with the batch as dimension 0 are allowed")


def _require(fits: bool, name: str, fault: str) -> None:
    if not fits:
        raise WorkloadError(f"workloads: {name!r}: {fault}")
