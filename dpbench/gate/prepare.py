"""Check a gate's request, and look up all that it names, before a commit's code runs."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dpbench.cases.plan import check_lanes, default_lanes
from dpbench.cases.supports import why_unsupported
from dpbench.engine.fence import landlock_version
from dpbench.engine.launch import Launcher
from dpbench.engine.other_load import TOO_BUSY, wait_for_quiet
from dpbench.errors import GateError, GateInputError, WrongInputError
from dpbench.gate.history import HistoryLine, SelfTest, check_appendable, history_path, read_history, read_self_tests
from dpbench.gate.judgement import Revision
from dpbench.gate.revisions import Repository
from dpbench.gate.settings import Selection, Settings, read_settings
from dpbench.jobs.probe import ask_machine
from dpbench.records.store import Contents

Progress = Callable[..., object]
"""Takes a stage, and the seconds that are left if they are known."""

WORKTREE = "--worktree"
_UNTIMED_LANES: tuple[str, ...] = ("cpu",)
"""Stands for the machine's lanes if no times are measured: counts do not need them."""
_PER_RANK = "has a process for each device, but a gate runs one for each side; allowed: the other variants"


@dataclass(frozen=True)
class GateRequest:
    """`head` is None for the working tree, `budget_s` for the settings' own.

    If there are `borrowed` benchmarks, they replace those of the settings. On a machine that stays busy for `wait_s`,
    no times are taken unless they are taken anyway.
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
    """`tiers` are those that this machine can take now, and `too_busy` says why times are not among them.

    `commits` are the full hashes of the commits that head has and base has not. `lanes` are the machine's own.
    """

    started_at: str
    start_s: float
    results: Path
    repository: Repository
    base: Revision
    head: Revision
    commits: frozenset[str]
    tiers: tuple[int, ...]
    too_busy: str | None
    budget_s: float
    lanes: tuple[str, ...]
    settings: Settings
    history: Contents[HistoryLine]
    self_tests: tuple[SelfTest, ...]
    notes: tuple[str, ...]


def prepare(request: GateRequest, launch: Launcher, progress: Progress) -> Prepared:
    """Raise GateError, SettingsError, StoreError or ChildError if the request cannot be carried out."""
    started_at, start_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    repository = Repository(Path.cwd())
    head = _head(repository, request)
    base = _base(repository, request, head)
    history = read_history(history_path(request.results))
    lanes, self_tests = _UNTIMED_LANES, tuple[SelfTest, ...]()
    # Read before the wait, so that wrong settings are refused at once: a busy machine takes long for torch.
    settings = read_settings(repository.root, request.settings, lanes, request.borrowed)
    tiers, too_busy = _possible_tiers(request, progress)
    if 1 in tiers:
        check_appendable(history_path(request.results))
        self_tests = read_self_tests(request.results)
        lanes, settings = timed_settings(repository, request.settings, launch, request.borrowed)
    if settings.scripts and 0 not in tiers and not (settings.benchmarks or settings.borrowed):
        raise GateInputError(f"--tiers: {','.join(map(str, tiers))} judges no script; allowed: tiers with 0")
    return Prepared(
        started_at=started_at,
        start_s=start_s,
        results=request.results,
        repository=repository,
        base=base,
        head=head,
        commits=repository.commits_between(str(base.commit), head.commit or "HEAD"),
        tiers=tiers,
        too_busy=too_busy,
        budget_s=request.budget_s or settings.budget_s,
        lanes=lanes,
        settings=settings,
        history=history,
        self_tests=self_tests,
        notes=(*_uncommitted_changes(repository, request), *history.warnings, *fence_notes()),
    )


def timed_settings(
    repository: Repository, path: Path | None, launch: Launcher, borrowed: tuple[Selection, ...] = ()
) -> tuple[tuple[str, ...], Settings]:
    """The machine's own lanes, and settings whose benchmarks this machine can time.

    If all benchmarks are borrowed or scripts, torch need not work, and the lanes are not the machine's. Raise
    GateError, SettingsError or ChildError.
    """
    settings = read_settings(repository.root, path, _UNTIMED_LANES, borrowed)
    if (settings.borrowed or settings.scripts) and not settings.benchmarks:
        return _UNTIMED_LANES, settings
    machine = ask_machine(launch=launch)
    if machine.torch is None:
        raise GateError(f"torch: does not import here ({machine.torch_error}); allowed: a Python with a working torch")
    lanes = default_lanes(machine)
    settings = read_settings(repository.root, path, lanes, borrowed)
    for benchmark in settings.benchmarks:
        case = benchmark.case(machine.cores, lanes)
        try:
            check_lanes(case.devices, case.batch, machine)
        except WrongInputError as error:
            raise GateInputError(f"benchmark {benchmark.name!r}: {error}") from error
        if reason := _PER_RANK if case.variant.is_per_rank else why_unsupported(case, machine):
            raise GateInputError(f"benchmark {benchmark.name!r}: variant: {str(case.variant)!r}: {reason}")
    return lanes, settings


def _base(repository: Repository, request: GateRequest, head: Revision) -> Revision:
    named = repository.resolve("--base", request.base)
    base = named if request.base_exact else repository.merge_base(named, head.commit or "HEAD")
    if named.commit == head.commit:
        raise GateInputError(
            f"--head: {head.asked!r} is the same commit as --base {base.asked!r}, {base.short}; "
            "allowed: two different ones, or --worktree"
        )
    if base.commit == head.commit:
        raise GateInputError(
            f"--head: {head.asked!r}, {head.short}, is a commit of --base {base.asked!r} already; "
            "allowed: a head with a commit that base has not, or --base-exact"
        )
    return base


def _head(repository: Repository, request: GateRequest) -> Revision:
    if request.head is not None:
        return repository.resolve("--head", request.head)
    changed = len(repository.changed_files(request.results))
    return Revision(asked=WORKTREE, commit=None, subject=f"{changed} files changed")


def _uncommitted_changes(repository: Repository, request: GateRequest) -> tuple[str, ...]:
    changed = repository.changed_files(request.results)
    if request.head != "HEAD" or not changed:
        return ()
    differ = "1 file differs" if len(changed) == 1 else f"{len(changed)} files differ"
    return (f"{differ} from HEAD and were not measured; --worktree measures the working tree",)


def fence_notes() -> tuple[str, ...]:
    if landlock_version():
        return ()
    return (
        "this kernel has no Landlock, so the measured code may have written any file; allowed: Linux 5.13 or newer",
    )


def _possible_tiers(request: GateRequest, progress: Progress) -> tuple[tuple[int, ...], str | None]:
    """The request's tiers, without 1 if the machine stays too busy for times, and then why.

    Times that were asked for by name are taken on any machine.
    """
    if request.takes_times_anyway or 1 not in request.tiers:
        return request.tiers, None
    wanting = wait_for_quiet(request.wait_s, progress)
    if wanting > TOO_BUSY:
        busy = f"{wanting:.1f} processes for each core want to run, at most {TOO_BUSY} may"
        busy = f"the machine is too busy for times: {busy}"
        progress(f"{busy}; only counts are compared")
        untimed = tuple(tier for tier in request.tiers if tier != 1)
        return untimed, f"{busy}; run with --wait-for-quiet 10m, or with --tiers 0,1 in spite of it"
    if wanting > 1:
        progress(f"{wanting:.1f} processes for each core want to run: this takes longer, and decides less")
    return request.tiers, None
