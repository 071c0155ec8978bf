"""From a name to a workload: a built-in family, or the user's own factory."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from dpbench.cases.names import IMPORT_FOLDERS, Data, Family, Size, is_factory, parse_workload
from dpbench.workloads import convnet, digits, embedding, many, mlp, transformer
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
T = TypeVar("T")


def resolve(name: str, data: Data) -> Workload:
    """Return the workload called ``family/size``, or the user's ``package.module:factory``.

    A factory is a function without arguments that returns a `Workload`. While it is imported and called, the current
    directory and its ``src`` are first on `sys.path`, so that they precede an installed copy. Then the
    directory and torch's thread count are what they were before. Raises WorkloadError.
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
    module, _, factory = name.partition(":")
    with _current_directory_importable():
        imported = _attempt(name, f"importing {module}", lambda: importlib.import_module(module))
        find = _attempt(name, f"looking up {factory}", lambda: getattr(imported, factory))
        made = _attempt(name, f"{factory}()", find)
    if not isinstance(made, Workload):
        raise WorkloadError(f"workloads: {name!r}: {factory}() returned {_kind(made)}; a {_WORKLOAD} is allowed")
    return made


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    here, threads = Path.cwd(), torch.get_num_threads()
    places = [str(here / folder) for folder in IMPORT_FOLDERS]
    sys.path[:0] = places
    try:
        yield
    finally:
        for place in places:
            if place in sys.path:
                sys.path.remove(place)
        os.chdir(here)
        torch.set_num_threads(threads)


def check(workload: Workload, name: str) -> None:
    """Build the model, and run forward and loss on a batch of 2.

    Raises WorkloadError with the workload's name and the part that failed. torch's random state does not change.
    """
    with torch.random.fork_rng(devices=[]):
        model = _attempt(name, "model()", workload.model)
        _require(isinstance(model, nn.Module), name, f"model() returned {_kind(model)}; an nn.Module is allowed")
        batch = _attempt(name, "batch(2, generator)", lambda: workload.batch(2, torch.Generator().manual_seed(0)))
        _check_batch(batch, name)
        output = _attempt(name, "forward", lambda: model(*batch.inputs))
        loss = _attempt(name, "loss(output, target)", lambda: workload.loss(output, batch.target))
    scalar = isinstance(loss, Tensor) and loss.dim() == 0 and loss.is_floating_point()
    _require(scalar, name, f"loss(output, target) returned {_kind(loss)}; a 0-dim floating tensor is allowed")


def _check_batch(batch: object, name: str) -> None:
    what = "batch(2, generator) returned"
    if not isinstance(batch, Batch):
        raise WorkloadError(f"workloads: {name!r}: {what} {_kind(batch)}; a {_BATCH} is allowed")
    _require(isinstance(batch.inputs, tuple), name, f"{what} inputs of {_kind(batch.inputs)}; a tuple is allowed")
    for part in (*batch.inputs, batch.target):
        fits = isinstance(part, Tensor) and part.dim() > 0 and part.shape[0] == 2
        _require(fits, name, f"{what} {_kind(part)} in a Batch; tensors with the batch as dimension 0 are allowed")


def _attempt(name: str, what: str, action: Callable[[], T]) -> T:
    """Call the user's code. Raises WorkloadError if it raises, `sys.exit` included."""
    try:
        return action()
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise WorkloadError(f"workloads: {name!r}: {what} raised {type(error).__name__}: {text}") from error


def _require(fits: bool, name: str, fault: str) -> None:
    if not fits:
        raise WorkloadError(f"workloads: {name!r}: {fault}")


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    return f"{type(value).__name__} {str(value)[:40]!r}"
