"""What was asked of a gate, checked and looked up, before anything is measured or written."""

from dataclasses import dataclass
from pathlib import Path

from dpbench.errors import GateError
from dpbench.gate.evidence import check_self_tests
from dpbench.gate.history import History, check_appendable, history_path, read_history
from dpbench.gate.judgement import Revision
from dpbench.gate.revisions import Repository
from dpbench.gate.settings import Settings, default_benchmarks, load_settings
from dpbench.run.ask import ask_machine
from dpbench.run.runner import Launcher
from dpbench.run.wrapper_of import WRAPPER, has_wrapper
from dpbench.sweep.names import is_factory
from dpbench.sweep.plan import PlanError, check_lanes, default_lanes
from dpbench.sweep.supports import why_unsupported
from dpbench.sweep.variants import VariantName

WORKTREE = "--worktree"
_NO_MATTER: tuple[str, ...] = ("cpu",)
_DDP = "has a process for each device, where a gate's sides take turns with one each; allowed: the other variants"
SETTINGS = Path("benchmarks/gate.toml")
"""Of the repository, where none is named; it need not be there."""


@dataclass(frozen=True)
class Asked:
    """The command line's. `head` None is the working tree."""

    base: str
    head: str | None = "HEAD"
    tiers: tuple[int, ...] = (0, 1)
    budget_s: float = 300.0
    settings: Path | None = None
    results: Path = Path("results")


@dataclass(frozen=True)
class Prepared:
    """`commits` are the full hashes of those that head has and base has not; `lanes` are the machine's own."""

    repository: Repository
    base: Revision
    head: Revision
    commits: frozenset[str]
    lanes: tuple[str, ...]
    settings: Settings
    history: History
    notes: tuple[str, ...]


def prepare(asked: Asked, launch: Launcher) -> Prepared:
    """Raises GateError, SettingsError, HistoryFileError or ProbeError."""
    repository = Repository(Path.cwd())
    base, head = repository.resolve("--base", asked.base), _head(repository, asked)
    if base.commit == head.commit:
        raise GateError(
            f"--head: {head.asked!r} is the same commit as --base {base.asked!r}, {base.short}; "
            "allowed: two different ones, or --worktree"
        )
    history = read_history(history_path(asked.results))
    if 1 in asked.tiers:
        check_appendable(history_path(asked.results))
        check_self_tests(asked.results)
        lanes, settings = to_be_timed(repository, asked.settings, launch)
    else:
        lanes, settings = _NO_MATTER, settings_of(repository, asked.settings, _NO_MATTER)
    return Prepared(
        repository=repository,
        base=base,
        head=head,
        commits=repository.commits_between(str(base.commit), head.commit or "HEAD"),
        lanes=lanes,
        settings=settings,
        history=history,
        notes=(*_of_the_tree(repository, asked), *history.warnings),
    )


def write_sides(prepared: Prepared, folder: Path) -> tuple[Path, Path]:
    """Base and head as folders in `folder`. Raises GateError, also where nothing in them could differ."""
    base, head = folder / "base", folder / "head"
    prepared.repository.write_commit(str(prepared.base.commit), base)
    if prepared.head.commit is None:
        prepared.repository.write_tree(head)
    else:
        prepared.repository.write_commit(prepared.head.commit, head)
    lacking = [side for side, tree in ((prepared.base, base), (prepared.head, head)) if not has_wrapper(tree)]
    own = any(is_factory(benchmark.workload) for benchmark in prepared.settings.benchmarks)
    if len(lacking) == 1 or (lacking and not own):
        raise GateError(
            f"{lacking[0].asked!r} ({lacking[0].short}) has no {WRAPPER.replace('.', '/')}; allowed: two commits that "
            "have one, or benchmarks whose workload is a package.module:factory of theirs"
        )
    return base, head


def to_be_timed(repository: Repository, path: Path | None, launch: Launcher) -> tuple[tuple[str, ...], Settings]:
    """The machine's own lanes, and settings whose benchmarks it can time. Raises GateError, SettingsError or ProbeError."""
    machine = ask_machine(launch=launch)
    if machine.torch is None:
        raise GateError(f"torch: does not import here ({machine.torch_error}); allowed: a Python with a working torch")
    lanes = default_lanes(machine)
    settings = settings_of(repository, path, lanes)
    for benchmark in settings.benchmarks:
        case = benchmark.case(machine.cores, lanes)
        try:
            check_lanes(case.devices, case.batch, machine)
        except PlanError as error:
            raise GateError(f"benchmark {benchmark.name!r}: {error}") from error
        if reason := _DDP if case.variant.name is VariantName.DDP else why_unsupported(case, machine):
            raise GateError(f"benchmark {benchmark.name!r}: variant: {str(case.variant)!r}: {reason}")
    return lanes, settings


def _head(repository: Repository, asked: Asked) -> Revision:
    if asked.head is not None:
        return repository.resolve("--head", asked.head)
    return Revision(
        asked=WORKTREE, commit=None, subject=f"{len(repository.changed_files(asked.results))} files changed"
    )


def _of_the_tree(repository: Repository, asked: Asked) -> tuple[str, ...]:
    changed = repository.changed_files(asked.results)
    if asked.head != "HEAD" or not changed:
        return ()
    return (f"{len(changed)} files differ from HEAD and were not measured; --worktree measures the tree itself",)


def settings_of(repository: Repository, path: Path | None, lanes: tuple[str, ...]) -> Settings:
    defaults = default_benchmarks(lanes)
    found = path or repository.root / SETTINGS
    if path is None and not found.exists():
        return Settings(benchmarks=defaults)
    return load_settings(found, defaults)
