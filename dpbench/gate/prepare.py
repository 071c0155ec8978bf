"""Check a gate's request and look up what it names, before anything is measured or written."""

from dataclasses import dataclass, replace
from pathlib import Path

from dpbench.cases.names import is_factory
from dpbench.cases.plan import PlanError, check_lanes, default_lanes
from dpbench.cases.project_file import find_project_table
from dpbench.cases.supports import why_unsupported
from dpbench.errors import GateError
from dpbench.gate.borrowed import Chosen
from dpbench.gate.contents import fence_notes
from dpbench.gate.false_alarms import check_self_tests
from dpbench.gate.history import History, check_appendable, history_path, read_history
from dpbench.gate.judgement import Revision
from dpbench.gate.new_benchmarks import Comparable
from dpbench.gate.revisions import Repository
from dpbench.gate.settings import Benchmark, Selection, Settings, default_benchmarks, load_settings
from dpbench.processes.ask import ask_machine
from dpbench.processes.launch import Launcher
from dpbench.processes.wrapper_of import WRAPPER, has_wrapper

WORKTREE = "--worktree"
SETTINGS = Path("benchmarks/gate.toml")
"""The settings file, in the working tree, if the request names none. Without it, pyproject.toml may have settings."""

_UNTIMED_LANES: tuple[str, ...] = ("cpu",)
"""Stands for the machine's lanes if no times are measured: counts do not need them."""
_PER_RANK = "has a process for each device, but a gate runs one for each side; allowed: the other variants"


@dataclass(frozen=True)
class GateRequest:
    """The options of the command line. `head` is None for the working tree.

    Unless `base_exact` is set, head is compared with the merge base of `base` and head. If there are `borrowed`
    benchmarks, they replace those of the settings. `budget_s` is None for the settings' own. On a machine that stays
    busy for `wait_s`, no times are taken unless they are taken anyway.
    """

    base: str
    head: str | None = "HEAD"
    base_exact: bool = False
    tiers: tuple[int, ...] = (0, 1)
    budget_s: float | None = None
    takes_times_anyway: bool = False
    wait_s: float = 0.0
    settings: Path | None = None
    results: Path = Path("results")
    borrowed: tuple[Selection, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """The checked request.

    `commits` are the full hashes of the commits that head has and base has not. `lanes` are the machine's own. `lost`
    and `left_out` are those of `Chosen`.
    """

    repository: Repository
    base: Revision
    head: Revision
    commits: frozenset[str]
    lanes: tuple[str, ...]
    settings: Settings
    history: History
    notes: tuple[str, ...]
    new: tuple[Benchmark, ...] = ()
    lost: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def without_new(self, sides: Comparable) -> "Prepared":
        """Return the same request without its new benchmarks, which are named in `new` and in the notes."""
        settings = self.settings.model_copy(update={"benchmarks": sides.both})
        return replace(self, settings=settings, new=sides.new, notes=(*self.notes, *sides.notes))

    def with_borrowed(self, chosen: Chosen) -> "Prepared":
        """Return the same request with the borrowed benchmarks, those that are new, and notes."""
        benchmarks = (*self.settings.benchmarks, *chosen.both.values())
        settings = self.settings.model_copy(update={"benchmarks": benchmarks})
        new, notes = (*self.new, *chosen.new.values()), (*self.notes, *chosen.notes)
        lost, left_out = tuple(dict.fromkeys(chosen.lost)), tuple(dict.fromkeys(chosen.left_out))
        return replace(self, settings=settings, new=new, notes=notes, lost=lost, left_out=left_out)


def prepare(request: GateRequest, launch: Launcher) -> Prepared:
    """Check a request and look up its parts.

    Raises GateError, SettingsError, HistoryFileError or ProbeError if it cannot be carried out.
    """
    repository = Repository(Path.cwd())
    head = _head(repository, request)
    base = _base(repository, request, head)
    history = read_history(history_path(request.results))
    if 1 in request.tiers:
        check_appendable(history_path(request.results))
        check_self_tests(request.results)
        lanes, settings = timed_settings(repository, request.settings, launch, request.borrowed)
    else:
        lanes = _UNTIMED_LANES
        settings = _read_settings(repository, request.settings, lanes, request.borrowed)
    if settings.scripts and 0 not in request.tiers and not (settings.benchmarks or settings.borrowed):
        raise GateError(f"--tiers: {','.join(map(str, request.tiers))} judges no script; allowed: tiers with 0")
    return Prepared(
        repository=repository,
        base=base,
        head=head,
        commits=repository.commits_between(str(base.commit), head.commit or "HEAD"),
        lanes=lanes,
        settings=settings,
        history=history,
        notes=(*_uncommitted_changes(repository, request), *history.warnings, *fence_notes()),
    )


def write_sides(prepared: Prepared, folder: Path) -> tuple[Path, Path]:
    """Write base and head into two new folders in `folder`, and return these.

    Raises GateError if they cannot be written, or if head holds neither a wrapper nor a user's factory to compare.
    """
    base, head = folder / "base", folder / "head"
    prepared.repository.write_commit(str(prepared.base.commit), base)
    if prepared.head.commit is None:
        prepared.repository.write_working_tree(head)
    else:
        prepared.repository.write_commit(prepared.head.commit, head)
    settings = prepared.settings
    own = (
        settings.borrowed
        or settings.scripts
        or any(is_factory(benchmark.workload) for benchmark in settings.benchmarks)
    )
    if not has_wrapper(head) and (has_wrapper(base) or not own):
        raise GateError(
            f"{prepared.head.asked!r} ({prepared.head.short}) has no {WRAPPER.replace('.', '/')}; allowed: a commit "
            f"that has one, or {SETTINGS} with a [[benchmark]] of yours: asv, pytest, script, or a "
            "package.module:factory as its workload; dpbench init writes such a file"
        )
    return base, head


def timed_settings(
    repository: Repository, path: Path | None, launch: Launcher, borrowed: tuple[Selection, ...] = ()
) -> tuple[tuple[str, ...], Settings]:
    """Return the machine's own lanes, and settings whose benchmarks this machine can time.

    If all benchmarks are borrowed or scripts, torch need not work, and the lanes are not the machine's.
    Raises GateError, SettingsError or ProbeError.
    """
    settings = _read_settings(repository, path, _UNTIMED_LANES, borrowed)
    if (settings.borrowed or settings.scripts) and not settings.benchmarks:
        return _UNTIMED_LANES, settings
    machine = ask_machine(launch=launch)
    if machine.torch is None:
        raise GateError(f"torch: does not import here ({machine.torch_error}); allowed: a Python with a working torch")
    lanes = default_lanes(machine)
    settings = _read_settings(repository, path, lanes, borrowed)
    for benchmark in settings.benchmarks:
        case = benchmark.case(machine.cores, lanes)
        try:
            check_lanes(case.devices, case.batch, machine)
        except PlanError as error:
            raise GateError(f"benchmark {benchmark.name!r}: {error}") from error
        if reason := _PER_RANK if case.variant.is_per_rank else why_unsupported(case, machine):
            raise GateError(f"benchmark {benchmark.name!r}: variant: {str(case.variant)!r}: {reason}")
    return lanes, settings


def _base(repository: Repository, request: GateRequest, head: Revision) -> Revision:
    named = repository.resolve("--base", request.base)
    base = named if request.base_exact else repository.merge_base(named, head.commit or "HEAD")
    if named.commit == head.commit:
        raise GateError(
            f"--head: {head.asked!r} is the same commit as --base {base.asked!r}, {base.short}; "
            "allowed: two different ones, or --worktree"
        )
    if base.commit == head.commit:
        raise GateError(
            f"--head: {head.asked!r}, {head.short}, is a commit of --base {base.asked!r} already; "
            "allowed: a head with a commit that base has not, or --base-exact"
        )
    return base


def _head(repository: Repository, request: GateRequest) -> Revision:
    if request.head is not None:
        return repository.resolve("--head", request.head)
    return Revision(
        asked=WORKTREE, commit=None, subject=f"{len(repository.changed_files(request.results))} files changed"
    )


def _uncommitted_changes(repository: Repository, request: GateRequest) -> tuple[str, ...]:
    changed = repository.changed_files(request.results)
    if request.head != "HEAD" or not changed:
        return ()
    differ = "1 file differs" if len(changed) == 1 else f"{len(changed)} files differ"
    return (f"{differ} from HEAD and were not measured; --worktree measures the working tree",)


def _read_settings(
    repository: Repository, path: Path | None, lanes: tuple[str, ...], borrowed: tuple[Selection, ...]
) -> Settings:
    defaults = default_benchmarks(lanes)
    found = path or _settings_file(repository)
    settings = Settings(benchmarks=defaults) if found is None else load_settings(found, defaults)
    return settings.model_copy(update={"benchmarks": (), "scripts": (), "borrowed": borrowed}) if borrowed else settings


def _settings_file(repository: Repository) -> Path | None:
    """Return gate.toml of the working tree, or the pyproject.toml that has settings, or None."""
    if (repository.root / SETTINGS).exists():
        return repository.root / SETTINGS
    found = find_project_table(Path.cwd())
    return found[0] if found and found[1].gate is not None else None
