"""Which benchmarks both commits have, and which head adds: base has nothing to hold against those.

A benchmark of the settings is new if base lacks its factory or its wrapper, and head has both. The files say so, before
anything runs. A benchmark of asv or pytest is listed and tried on both commits:

    on head      on base
    works        works       compared
    works        missing     new
    works        fails       left out, with a note
    fails        works       the gate cannot judge
    fails        fails       left out, with a note; the gate cannot judge if the settings name it
    skipped      works       lost: the verdict is undecided, unless something is worse
    missing      works       lost

Other skipped benchmarks are left out.
"""

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.cases.names import IMPORT_FOLDERS, is_factory
from dpbench.cases.variants import VariantName
from dpbench.engine.interpret import ChildError
from dpbench.engine.messages import Listed, Listing, Listings, ListJob, ListJobs
from dpbench.engine.task import Task
from dpbench.engine.wrapper_of import WRAPPER, has_wrapper
from dpbench.errors import GateError
from dpbench.gate.prepare import Prepared, Progress
from dpbench.gate.settings import Benchmark, BorrowedBenchmark, Selection, is_value
from dpbench.gate.sides import Sides
from dpbench.gate.tier0_cases import own_jobs, wrapper_jobs
from dpbench.jobs.count import LIMIT_S, count_all
from dpbench.records.record import Outcome
from dpbench.text.outside import read_input
from dpbench.text.validated import nearest

LISTER = Task("dpbench.jobs.listing_child", Listings)
_MOST = 10_000
_FIRST_CALL = "it measures one call in each process, so it was called once in each"
_WITHOUT_WRAPPER = frozenset(
    (VariantName.SINGLE, VariantName.TORCH_DP, VariantName.NAIVE, VariantName.FLOOR, VariantName.DDP)
)


@dataclass(frozen=True)
class Benchmarks:
    """`lost` are the names of benchmarks that work on base, and that head skips or lacks.

    `left_out` are those of others that are not compared, and errors of files that head cannot import.
    """

    both: tuple[Benchmark, ...] = ()
    new: tuple[Benchmark, ...] = ()
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def beside(self, other: "Benchmarks") -> "Benchmarks":
        """Benchmarks of one name are one, and so are equal notes."""
        return Benchmarks(
            both=tuple({benchmark.name: benchmark for benchmark in (*self.both, *other.both)}.values()),
            new=tuple({benchmark.name: benchmark for benchmark in (*self.new, *other.new)}.values()),
            notes=tuple(dict.fromkeys([*self.notes, *other.notes])),
            lost=tuple(dict.fromkeys([*self.lost, *other.lost])),
            left_out=tuple(dict.fromkeys([*self.left_out, *other.left_out])),
        )


def choose_benchmarks(prepared: Prepared, sides: Sides, progress: Progress) -> Benchmarks:
    """Raise GateError if head lacks or breaks one."""
    own_benchmarks = comparable(prepared.settings.benchmarks, sides.base, sides.head)
    if own_benchmarks.new:
        progress("counting one step of head's new benchmarks")
        _check_new(own_benchmarks.new, sides)
    if not prepared.settings.borrowed:
        return own_benchmarks
    progress("looking for the benchmarks of base and of head")
    borrowed = look_up(prepared.settings.borrowed, sides)
    values = [] if 0 in prepared.tiers else [benchmark.name for benchmark in filter(is_value, borrowed.both)]
    notes = tuple(f"{name}: not compared: values are of tier 0" for name in values)
    return own_benchmarks.beside(borrowed).beside(Benchmarks(notes=notes, left_out=tuple(values)))


def comparable(benchmarks: Sequence[Benchmark], base: Path, head: Path) -> Benchmarks:
    """Raise GateError if head lacks one."""
    lacking = {benchmark.name: _base_lacks(benchmark, base, head) for benchmark in benchmarks}
    return Benchmarks(
        both=tuple(benchmark for benchmark in benchmarks if lacking[benchmark.name] is None),
        new=tuple(benchmark for benchmark in benchmarks if lacking[benchmark.name] is not None),
        notes=tuple(
            f"{name}: new: nothing to hold it against, because base has no {what}"
            for name, what in lacking.items()
            if what is not None
        ),
    )


def _base_lacks(benchmark: Benchmark, base: Path, head: Path) -> str | None:
    """What only head has of the benchmark; None if both have it. Raise GateError if head lacks it."""
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


def _check_new(benchmarks: Sequence[Benchmark], sides: Sides) -> None:
    """Count one step of new benchmarks, so that they work when they are compared.

    Raise GateError if head's step fails. A case that cannot be counted on simulated devices must count on CPU lanes.
    """
    is_new = has_wrapper(sides.head) and not has_wrapper(sides.base)
    jobs = {**(wrapper_jobs() if is_new else {}), **own_jobs(benchmarks)}
    try:
        records = count_all(tuple(job.case for job in jobs.values()), folder=sides.head, launch=sides.launch)
    except ChildError as error:
        raise GateError(f"head: {' '.join(str(error).split())}") from error
    counted = {record.case.workload for record in records if record.outcome is Outcome.OK}
    for record in records:
        is_counted_elsewhere = record.outcome is Outcome.SKIPPED and record.case.workload in counted
        if record.outcome is not Outcome.OK and not is_counted_elsewhere:
            raise GateError(f"head: {record.case.workload}: {record.why}")


def has_factory(folder: Path, workload: str) -> bool:
    """Whether the files in `folder` bind the factory. True for a module that only an import can tell about."""
    module, _, factory = workload.partition(":")
    sources = [source for root in IMPORT_FOLDERS for source in _sources(folder / root, module)]
    return any(source.suffix != ".py" or binds(_source_of(source), factory) for source in sources)


def _sources(root: Path, module: str) -> Iterator[Path]:
    place = root.joinpath(*module.split("."))
    yield from filter(Path.is_file, (place / "__init__.py", place.with_name(f"{place.name}.py")))
    yield from place.parent.glob(f"{place.name}.*.so")


def _source_of(path: Path) -> bytes:
    try:
        return read_input(path)
    except OSError:  # too large, or not to be read: an import will say so
        return b"from outside import *"


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


def look_up(selections: Sequence[Selection], sides: Sides) -> Benchmarks:
    """Raise GateError."""
    jobs = [
        ListJob(suite=suite, text=text, pattern=selection.pattern, folder=str(folder))
        for folder in (sides.base, sides.head)
        for selection in selections
        for suite, text in [selection.wanted]
    ]
    ended = LISTER.run(ListJobs(jobs=tuple(jobs), timeout_s=LIMIT_S), LIMIT_S * _MOST, sides.launch)
    if (answer := ended.answer) is None:
        raise GateError(f"listing failed: {ended.why}")
    chosen, count = Benchmarks(), len(selections)
    for selection, base, head in zip(selections, answer.listings[:count], answer.listings[count:], strict=True):
        chosen = chosen.beside(choose(selection, base, head))
    if not chosen.both and not chosen.new and not chosen.lost:
        raise GateError(f"benchmark: none can be measured: {chosen.notes[0]}; allowed: one that works on both sides")
    return chosen


def choose(selection: Selection, base: Listing, head: Listing) -> Benchmarks:
    """Raise GateError if head lacks or breaks what the selection means. Pure."""
    suite, text = selection.wanted
    on_base, on_head = ({listed.name: listed for listed in listing.meant} for listing in (base, head))
    if not on_head:
        raise GateError(f"benchmark: {suite}: {text!r}: {_why_missing(suite, text, head, is_in_base=bool(on_base))}")
    gone = [name for name in on_base if name not in on_head]
    absent = [*gone, *(name for name, listed in on_head.items() if listed.refused is not None)]
    works_on_base = {name for name, listed in on_base.items() if listed.refused is None}
    works = [name for name, listed in on_head.items() if listed.refused is None]
    problems = {"base": base.problems, "head": head.problems} if selection.pattern else {}
    remarks = {
        name: _remark(listed, on_base.get(name), is_named=not selection.pattern) for name, listed in on_head.items()
    }
    benchmarks = {name: _borrowed(selection, on_head[name]) for name in works}
    return Benchmarks(
        both=tuple(benchmarks[name] for name in works if name in works_on_base),
        new=tuple(benchmarks[name] for name in works if name not in on_base),
        notes=(
            *(f"{name}: only base has it" for name in gone),
            *(f"{side}: not read: {problem}" for side, texts in problems.items() for problem in texts),
            *head.notes,
            *(f"{name}: {remark}" for name, remark in remarks.items() if remark),
            *(f"{name}: {_FIRST_CALL}" for name in works if on_head[name].is_first_call),
        ),
        lost=tuple(name for name in absent if name in works_on_base),
        left_out=(
            *problems.get("head", ()),
            *(name for name in absent if name not in works_on_base),
            *(name for name in works if name in on_base.keys() - works_on_base),
        ),
    )


def _why_missing(suite: str, text: str, head: Listing, *, is_in_base: bool) -> str:
    why = "only base has it" if is_in_base else "head has no such benchmark"
    before_parameters = "(" if suite == "asv" else "["
    names = [name for full in head.all for name in (full, full.partition(before_parameters)[0])]
    problem = f"; {head.problems[0]}" if head.problems else ""
    return f"{why}{nearest(text, names)}{problem}; allowed: one that head has"


def _borrowed(selection: Selection, listed: Listed) -> BorrowedBenchmark:
    return BorrowedBenchmark(
        name=listed.name,
        workload=f"{selection.wanted[0]} {listed.name}",
        cores=selection.cores,
        threshold=selection.threshold,
        is_value=listed.is_value,
        limit_s=max(LIMIT_S, 2 * max(listed.timeouts_s[:1], default=0)),
    )


def _remark(head: Listed, base: Listed | None, *, is_named: bool) -> str | None:
    """None if nothing is notable. Raise GateError if the gate cannot judge without the benchmark."""
    if head.refused is not None:
        works_on_base = base is not None and base.refused is None
        if not head.is_skipped and (works_on_base or is_named):
            raise GateError(f"benchmark {head.name!r}: head: {head.refused}")
        return f"left out: {head.refused}"
    if base is None:
        return "new: nothing to hold it against, because base does not have it"
    if base.refused is not None:
        return f"left out: base: {base.refused}"
    return "base and head have different code of the benchmark itself" if base.version != head.version else None
