"""Find benchmarks that head adds: base has nothing to hold against them.

A benchmark is new if base lacks its factory or its wrapper, and head has both. The files say so, before anything runs:

    my_project.bench:step    my_project/bench.py, or src/my_project/bench.py, binds the name `step`
    mlp/tiny                 dpbench/parallel is there
"""

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.cases.case import Case
from dpbench.cases.names import IMPORT_FOLDERS, is_factory
from dpbench.cases.variants import VariantName
from dpbench.errors import GateError
from dpbench.gate.settings import Benchmark
from dpbench.processes.count_all import CountingError, count_all
from dpbench.processes.launch import Launcher
from dpbench.processes.wrapper_of import WRAPPER, has_wrapper
from dpbench.records.record import Outcome

_WITHOUT_WRAPPER = frozenset(
    (VariantName.SINGLE, VariantName.TORCH_DP, VariantName.NAIVE, VariantName.FLOOR, VariantName.DDP)
)


@dataclass(frozen=True)
class Comparable:
    """The benchmarks that both commits have, and those that are new, with a note for each new one."""

    both: tuple[Benchmark, ...]
    new: tuple[Benchmark, ...] = ()
    notes: tuple[str, ...] = ()


def comparable(benchmarks: Sequence[Benchmark], base: Path, head: Path) -> Comparable:
    """Split the benchmarks of these two folders. Raises GateError if head lacks one."""
    lacking = {benchmark.name: _base_lacks(benchmark, base, head) for benchmark in benchmarks}
    return Comparable(
        both=tuple(each for each in benchmarks if lacking[each.name] is None),
        new=tuple(each for each in benchmarks if lacking[each.name] is not None),
        notes=tuple(
            f"{name}: new: nothing to hold it against, because base has no {what}"
            for name, what in lacking.items()
            if what is not None
        ),
    )


def check_new(cases: Sequence[Case], head: Path, launch: Launcher) -> None:
    """Count one step of new benchmarks, so that they work when they are compared.

    Raises GateError if head's step fails. A case that cannot be counted on simulated devices must count on CPU lanes.
    """
    try:
        records = count_all(cases, folder=head, launch=launch)
    except CountingError as error:
        raise GateError(f"head: {' '.join(str(error).split())}") from error
    counted = {record.case.workload for record in records if record.outcome is Outcome.OK}
    for record in records:
        if record.outcome is not Outcome.OK and (
            record.outcome is not Outcome.SKIPPED or record.case.workload not in counted
        ):
            raise GateError(f"head: {record.case.workload}: {record.why}")


def _base_lacks(benchmark: Benchmark, base: Path, head: Path) -> str | None:
    """Say what only head has of the benchmark; None if both have it. Raises GateError if head lacks it."""
    uses_wrapper = benchmark.variant.name not in _WITHOUT_WRAPPER
    if uses_wrapper and has_wrapper(head) and not has_wrapper(base):
        return WRAPPER.replace(".", "/")
    if not is_factory(benchmark.workload):
        return None
    in_head, in_base = has_factory(head, benchmark.workload), has_factory(base, benchmark.workload)
    # the factory may be installed, if the commits hold the wrapper that it is for
    if not in_head and (in_base or not has_wrapper(head)):
        sides = "head has" if in_base else "base and head have"
        raise GateError(
            f"benchmark {benchmark.name!r}: workload: {benchmark.workload!r}: {sides} no such function; "
            "allowed: a package.module:factory whose file git tracks, in the repository's root or its src"
        )
    return None if in_base or not in_head else benchmark.workload


def has_factory(folder: Path, workload: str) -> bool:
    """Whether the files in `folder` bind the factory. True for a module that only an import can tell about."""
    module, _, factory = workload.partition(":")
    sources = [source for root in IMPORT_FOLDERS for source in _sources(folder / root, module)]
    return any(source.suffix != ".py" or binds(source.read_bytes(), factory) for source in sources)


def _sources(root: Path, module: str) -> Iterator[Path]:
    place = root.joinpath(*module.split("."))
    yield from filter(Path.is_file, (place / "__init__.py", place.with_name(f"{place.name}.py")))
    yield from place.parent.glob(f"{place.name}.*.so")


def binds(source: bytes, name: str) -> bool:
    """Whether a module binds `name` at its top level. Pure.

    True if only running it can tell: for a syntax error, a star import, and a module with ``__getattr__``.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            bound = set(_bound(ast.parse(source).body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return bool({name, "*", "__getattr__"} & bound)


def _bound(statements: Iterable[ast.AST]) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.alias):
            yield statement.asname or statement.name.partition(".")[0]
        elif isinstance(statement, ast.Name):
            if isinstance(statement.ctx, ast.Store):
                yield statement.id
        else:
            yield from _bound(ast.iter_child_nodes(statement))
