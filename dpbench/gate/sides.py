"""The two commits: a folder of each, what is built of it, and the launcher that runs their code.

    base/             the commit's files, with a `.git`, from which tools read the version that a checkout has
    base-built/       what the build command installed, if benchmarks are borrowed
    base-scratch/     what benchmarks write

    launcher ──> scratch folder ──> child, whose forks are fenced (engine/fence.py) ──> are all folders as before?

The fence needs a kernel with Landlock, and does not refuse chmod. So the folders are compared after each child.
"""

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from dpbench.cases.names import IMPORT_FOLDERS, is_factory
from dpbench.engine.fence import SCRATCH
from dpbench.engine.interpret import ending, last_lines
from dpbench.engine.launch import Exit, Launcher
from dpbench.engine.messages import CompileJob, Side, SideName
from dpbench.engine.start import child_command
from dpbench.engine.task import Task
from dpbench.engine.wrapper_of import WRAPPER, built_of, has_wrapper, scratch_of
from dpbench.errors import GateError, GateInputError
from dpbench.gate.prepare import Prepared, Progress
from dpbench.gate.revisions import OF_GIT, gate_folder
from dpbench.gate.settings import DEFAULT_BUILD, SETTINGS, Settings
from dpbench.measure.borrowed.asv_conf import repo_subdir, split_name
from dpbench.text.validated import Frozen

COMPILER = Task("dpbench.jobs.compile_child", Frozen)
_COMPILE_S = 60.0
_BUILD_S = 3600.0
_SHOWN_LINES = 8

Contents = Mapping[str, str]
"""By the path of each entry of a folder: its mode, and its target or the hash of its bytes."""


@dataclass(frozen=True)
class Sides:
    """`build_s` are the seconds of both builds. `head_environment` has variables by benchmark."""

    base: Path
    head: Path
    launch: Launcher
    build_s: float = 0.0
    head_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def of(self, benchmark: str) -> dict[SideName, Side]:
        """The sides as a round of this benchmark runs them."""
        base = Side(folder=str(self.base))
        head = Side(folder=str(self.head), environment=dict(self.head_environment.get(benchmark, {})))
        return {SideName.BASE: base, SideName.TWIN: base, SideName.HEAD: head}


@contextmanager
def open_sides(prepared: Prepared, launch: Launcher, progress: Progress) -> Iterator[Sides]:
    """Write both commits into a temporary folder, which is removed at the end, and build them if that is needed.

    Raise GateError if this fails, or if head holds neither a wrapper nor benchmarks of its own.
    """
    settings = prepared.settings
    with gate_folder() as folder:
        commits = {"base": folder / "base", "head": folder / "head"}
        for side, revision in (("base", prepared.base), ("head", prepared.head)):
            if revision.commit is None:
                prepared.repository.write_working_tree(commits[side])
            else:
                prepared.repository.write_commit(revision.commit, commits[side])
        _check_measurable(prepared, commits["base"], commits["head"])
        start_s = time.monotonic()
        for side, commit in commits.items() if settings.borrowed else ():
            progress(f"building {side}")
            build(side, commit, settings, launch)
        build_s = time.monotonic() - start_s
        compile_sides(launch, commits.values(), (benchmark.workload for benchmark in settings.benchmarks))
        built = {f"{side}, as built": built_of(commit) for side, commit in commits.items()}
        fenced = guarded(launch, folder, {**commits, **built})
        yield Sides(commits["base"], commits["head"], fenced, build_s)


def _check_measurable(prepared: Prepared, base: Path, head: Path) -> None:
    settings, revision = prepared.settings, prepared.head
    workloads = [benchmark.workload for benchmark in settings.benchmarks]
    has_own = settings.borrowed or settings.scripts or any(map(is_factory, workloads))
    if not has_wrapper(head) and (has_wrapper(base) or not has_own):
        raise GateInputError(
            f"{revision.asked!r} ({revision.short}) has no {WRAPPER.replace('.', '/')}; allowed: a commit "
            f"that has one, or {SETTINGS} with a [[benchmark]] of yours: asv, pytest, script, or a "
            "package.module:factory as its workload; dpbench init writes such a file"
        )


def build(side: str, commit: Path, settings: Settings, launch: Launcher) -> None:
    """Run the build command, fenced, in the commit's folder, unless it is empty. Raise GateError, which names the
    `side`. The default command runs in the folder that asv's configuration names as `repo_subdir`.
    """
    command, place = settings.build, commit
    texts = [selection.asv for selection in settings.borrowed if selection.asv is not None]
    if texts and command == DEFAULT_BUILD:
        place = commit / repo_subdir(commit, split_name(texts[0])[0])
        if not place.is_dir() or not place.resolve().is_relative_to(commit.resolve()):
            raise GateError(f"{side}: asv's repo_subdir: {place.name!r} is no folder of the commit; allowed: one")
    try:
        scratch_of(commit).mkdir()
        if not command:
            return
        built_of(commit).mkdir()
    except OSError as error:
        raise GateError(f"{str(commit.parent)!r} cannot be written: {error.strerror}") from error
    run = with_pip(command).replace("{folder}", shlex.quote(str(built_of(commit))))
    line = f"cd {shlex.quote(str(place))} && {run}"
    folders = list(map(str, (commit, built_of(commit))))
    fenced = [*child_command("dpbench.engine.fence"), *folders, "--", "sh", "-c", line, "build"]
    end = launch(["env", *_build_environment(scratch_of(commit)), *fenced], "", _BUILD_S)
    if end.returncode:
        log = last_lines(end.tail)[-_SHOWN_LINES:]
        raise GateError(f"{side}: build: {command!r} {ending(end)}; its last lines: {' | '.join(log)}")


def with_pip(command: str) -> str:
    """The shell command with this Python's pip for `pip`, or uv's in an environment without one.

    A `pip` elsewhere on the path may belong to another Python, or be a shim that writes where the fence forbids.
    """
    python = shlex.quote(sys.executable)
    pip = f"{python} -m pip"
    if find_spec("pip") is None and shutil.which("uv"):
        pip = f"UV_PYTHON={python} uv pip"
    return re.sub(r"(^|[;&|]\s*)pip3?(?=\s)", lambda match: match[1] + pip, command)


def _build_environment(scratch: Path) -> list[str]:
    """Arguments for `env`: this Python's pip first, scratch in the gate's folder, no variable of git's."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    fixed = {"PATH": path, SCRATCH: str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    return [*(f"--unset={name}" for name in OF_GIT), *(f"{name}={value}" for name, value in fixed.items())]


def compile_sides(launch: Launcher, sides: Iterable[Path], workloads: Iterable[str]) -> None:
    """Else each of many forks would compile the wrapper and the packages of the factories."""
    packages = {workload.partition(":")[0].partition(".")[0] for workload in workloads if is_factory(workload)}
    places = [WRAPPER.replace(".", "/"), *(str(Path(root, name)) for root in IMPORT_FOLDERS for name in packages)]
    for side in sides:
        COMPILER.run(CompileJob(folder=str(side), places=tuple(places)), _COMPILE_S, launch)


def guarded(launch: Launcher, folder: Path, sides: Mapping[str, Path]) -> Launcher:
    """Fence the launcher's children, which have their scratch in `folder`.

    The new launcher raises GateError if a child changed one of the `sides`, which are folders by their names.
    """
    before = {name: contents(side) for name, side in sides.items()}

    def launch_guarded(command: list[str], stdin_text: str, timeout_s: float) -> Exit:
        with TemporaryDirectory(prefix="scratch-", dir=folder, ignore_cleanup_errors=True) as scratch:
            end = launch(["env", f"{SCRATCH}={scratch}", *command], stdin_text, timeout_s)
            subprocess.run(["rm", "-rf", "--", scratch], check=False, capture_output=True)  # rmtree recurses
        for name, side in sides.items():
            if change := first_change(before[name], contents(side)):
                raise GateError(f"{name}: the measured code {change}; allowed: code that writes to TMPDIR only")
        return end

    return launch_guarded


def contents(folder: Path) -> Contents:
    """Links are not followed."""
    return dict(_entries(folder))


def first_change(before: Contents, after: Contents) -> str | None:
    """By path; None if nothing was removed, changed or added. Pure."""
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            verb = "removed" if path not in after else "changed" if path in before else "added"
            return f"{verb} {path!r}"
    return None


def _entries(folder: Path) -> Iterator[tuple[str, str]]:
    yield ".", oct(folder.lstat().st_mode) if folder.exists() else "none"
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            yield str(path.relative_to(folder)), _signature(path)


def _signature(path: Path) -> str:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return f"{mode:o} {path.readlink()}"
        if not stat.S_ISREG(mode):
            return f"{mode:o}"
        with path.open("rb") as file:
            return f"{mode:o} {hashlib.file_digest(file, 'blake2b').hexdigest()}"
    except OSError as error:  # it was readable before
        return str(error)
