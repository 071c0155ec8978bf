"""`dpbench.compare`: the comparison of `dpbench compare` from Python, such as in a notebook.

    dpbench.compare(model, (inputs, target), loss, devices=["cuda:0", "cuda:1"])

this process ──cloudpickle──> a module in a temporary folder ──> the children of `dpbench compare` import it

The children are new processes, so a notebook whose process uses CUDA can be compared, and its state stays as it is.
"""

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dpbench.analysis.compare_variants import Comparisons
from dpbench.analysis.compare_variants import compare as compare_records
from dpbench.cases.spec import Spec, from_options
from dpbench.cases.variants import SCHEMES
from dpbench.errors import UnusableMachineError, WrongInputError
from dpbench.jobs.budget import USUAL
from dpbench.jobs.sweep import machine_for, run_sweep
from dpbench.records.record import Record
from dpbench.records.store import Store, new_run_path
from dpbench.report.comparison import comparisons_text
from dpbench.report.progress import progress_bar
from dpbench.report.rows import FlatRow, RowKind, rows_of
from dpbench.report.table import plain_lines

_MODULE = "given"
_SOURCE = '''"""Written by dpbench.compare for its own children, and removed with them."""

from pathlib import Path

import cloudpickle

globals().update(cloudpickle.loads(Path(__file__).with_suffix(".pickle").read_bytes()))
'''
_WIDTH = 100


@dataclass(frozen=True)
class Result:
    """What was compared. A notebook shows it as the text of `dpbench compare`."""

    comparisons: Comparisons
    records: tuple[Record, ...]

    @property
    def table(self) -> list[FlatRow]:
        """A row for each case, with units in the names: ``pandas.DataFrame(result.table)``."""
        return rows_of(self.records, RowKind.CASES)

    def __str__(self) -> str:
        return "\n".join(plain_lines(comparisons_text(self.comparisons), width=_WIDTH))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def compare(
    model: Any,
    batch: Any,
    loss: Callable[[Any, Any], Any],
    *,
    devices: Sequence[str] | None = None,
    variants: Sequence[str | Callable[..., Any]] = SCHEMES,
    optimizer: Callable[[Any], Any] | None = None,
    mode: str = "train",
    dtype: str = "float32",
    rounds: int | None = None,
    budget: str | None = None,
    results: Path | str = "results/runs",
) -> Result:
    """Measure variants of data parallelism on a model, and return their comparison.

    `model` is a module, of which the children get copies, or a function that returns one. `batch` is ``(inputs,
    target)``: tensors with the batch as dimension 0, and `inputs` one tensor or a tuple of them. ``loss(output,
    target)`` returns a 0-dim mean. `variants` are names, or callables with ``(model, devices)``. The others are the
    options of `dpbench compare`. Raises WrongInputError and the other errors of `dpbench.errors`, with one line.
    """
    inputs, target = batch
    inputs = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    _check_batch(inputs, target)
    factories = {_name(variant): variant for variant in variants if not isinstance(variant, str)}
    names = [variant if isinstance(variant, str) else f"{_MODULE}:{_name(variant)}" for variant in variants]
    workload, limit = f"{_name(model)}_model", USUAL if budget is None else budget
    factories[workload] = _factory(model, inputs, target, loss, optimizer)
    spec = from_options(
        {
            "variants": ",".join(names),
            "workloads": f"{_MODULE}:{workload}",
            "batch": str(len(target)),
            "devices": "+".join(devices) if devices else None,
            "modes": mode,
            "dtypes": dtype,
            "rounds": rounds,
            "budget": limit,
            "case_time": limit,
        }
    )
    with _importable(factories):
        return _measured(spec, Path(results), settles=rounds is None and budget is None)


def _measured(spec: Spec, results: Path, *, settles: bool) -> Result:
    from dpbench.cases.plan import plan

    machine = machine_for(spec)
    if reason := machine.why_unusable(spec.devices):
        raise UnusableMachineError(reason)
    planned = plan(spec, machine)
    with Store(new_run_path(results, "compare")) as store, progress_bar() as progress:
        swept = run_sweep(spec, planned, store, progress, settles=settles)
    if swept.is_interrupted:
        raise KeyboardInterrupt
    return Result(compare_records(swept.records, planned.skipped), swept.records)


def _name(thing: Any) -> str:
    return str(getattr(thing, "__name__", type(thing).__name__))


def _check_batch(inputs: Sequence[Any], target: Any) -> None:
    sizes = [getattr(tensor, "shape", ())[:1] for tensor in (*inputs, target)]
    if len(set(sizes)) != 1 or not sizes[0]:
        shapes = ", ".join(str(tuple(getattr(tensor, "shape", ()))) for tensor in (*inputs, target))
        raise WrongInputError(f"batch: has shapes {shapes}; allowed: tensors with the batch as dimension 0")


def _factory(
    model: Any, inputs: Sequence[Any], target: Any, loss: Callable[..., Any], optimizer: Callable[..., Any] | None
) -> Callable[[], Any]:
    """Return the workload's factory. Modules and tensors are copied to the host's memory."""
    from torch import nn

    is_module = isinstance(model, nn.Module)
    held = copy.deepcopy(model).cpu() if is_module else model
    columns, labels = [column.detach().cpu() for column in inputs], target.detach().cpu()

    def factory() -> Any:
        from dpbench.workloads.workload import Batch, Workload

        options: dict[str, Any] = {} if optimizer is None else {"optimizer": optimizer}
        return Workload(
            model=(lambda: copy.deepcopy(held)) if is_module else held,
            batch=lambda size, _: Batch(tuple(column[:size] for column in columns), labels[:size]),
            loss=loss,
            **options,
        )

    return factory


@contextmanager
def _importable(factories: dict[str, Any]) -> Iterator[None]:
    """Within the block, children find a module with these names, whose objects travel by cloudpickle."""
    try:
        import cloudpickle
    except ImportError:
        raise WrongInputError("cloudpickle: is not installed; allowed: pip install 'torch-dpbench[python]'") from None
    before = os.environ.get("PYTHONPATH")
    with TemporaryDirectory(prefix="dpbench-") as folder:
        Path(folder, f"{_MODULE}.py").write_text(_SOURCE)
        Path(folder, f"{_MODULE}.pickle").write_bytes(cloudpickle.dumps(factories))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, before)))
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before
