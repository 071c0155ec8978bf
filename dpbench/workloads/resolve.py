"""From a name to a workload: a built-in family, or the user's own factory."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dpbench.cases.names import IMPORT_FOLDERS, Data, Family, Size, is_factory, parse_workload
from dpbench.workloads import convnet, digits, embedding, many, mlp, transformer
from dpbench.workloads.workload import Batch, Workload, WorkloadError

T = TypeVar("T")


@contextmanager
def current_directory_importable() -> Iterator[None]:
    """Within the block, the current directory and its ``src`` are first on `sys.path`, before an installed copy.

    Then the directory and torch's thread count are what they were before, and the current directory is the last entry
    of `sys.path`: a factory's model may import from it when it is built. Call this in a process that runs user code.
    """
    here, threads = Path.cwd(), torch.get_num_threads()
    places = [str(here / folder) for folder in IMPORT_FOLDERS]
    sys.path[:0] = places
    try:
        yield
    finally:
        for place in places:
            if place in sys.path:
                sys.path.remove(place)
        if "" not in sys.path:
            sys.path.append("")
        os.chdir(here)
        torch.set_num_threads(threads)


def load(named: str, text: str) -> Any:
    """The object that ``package.module:attribute`` names; `named` begins the line of a WorkloadError."""
    module, _, attribute = text.partition(":")
    imported = attempt(named, f"importing {module}", lambda: importlib.import_module(module))
    return attempt(named, f"looking up {attribute}", lambda: getattr(imported, attribute))


def attempt(named: str, what: str, action: Callable[[], T]) -> T:
    """Raise WorkloadError if the user's code raises, `sys.exit` included."""
    try:
        return action()
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise WorkloadError(f"{named}: {what} raised {type(error).__name__}: {text}") from error


def kind_of(value: object) -> str:
    """A value's type, with its shape or the beginning of its text."""
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    return f"{type(value).__name__} {str(value)[:40]!r}"


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
    """``family/size``, or ``package.module:factory``, a user's function without arguments. Raise WorkloadError."""
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
    """Run the model's forward and loss on a batch of 2. torch's random state does not change.

    Raise WorkloadError with the workload's name and the part that failed.
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
