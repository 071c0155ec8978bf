"""Run the code of two commits so that neither changes the other, nor this machine.

    launcher ──> scratch folder ──> child, whose forks are fenced (processes/fence.py) ──> are both folders as before?

The fence needs a kernel with Landlock, and does not refuse chmod. So the folders are compared after each child.
"""

import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from dpbench.cases.names import IMPORT_FOLDERS, is_factory
from dpbench.errors import GateError
from dpbench.processes.fence import SCRATCH, landlock_version
from dpbench.processes.launch import Exit, Launcher
from dpbench.processes.start import child_command
from dpbench.processes.wrapper_of import WRAPPER

_COMPILE = child_command("dpbench.processes.child.compile")
_COMPILE_S = 60.0

Contents = Mapping[str, str]
"""By the path of each entry of a folder: its mode, and its target or the hash of its bytes."""


def guarded(launch: Launcher, folder: Path, sides: Mapping[str, Path]) -> Launcher:
    """Return a launcher of fenced children, which make their scratch folders in `folder`.

    `sides` are the folders of the commits by their names. The launcher raises GateError if a child changed one of them.
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


def fence_notes() -> tuple[str, ...]:
    """Return a note if this kernel cannot fence the measured code."""
    if landlock_version():
        return ()
    return (
        "this kernel has no Landlock, so the measured code may have written any file; allowed: Linux 5.13 or newer",
    )


def compile_sides(launch: Launcher, sides: Iterable[Path], workloads: Iterable[str]) -> None:
    """Compile the wrapper and the packages of the factories in these folders. Else each of many forks would do so."""
    packages = {workload.partition(":")[0].partition(".")[0] for workload in workloads if is_factory(workload)}
    places = [WRAPPER.replace(".", "/"), *(str(Path(root, name)) for root in IMPORT_FOLDERS for name in packages)]
    for side in sides:
        launch(_COMPILE, json.dumps([str(side), *places]), _COMPILE_S)


def contents(folder: Path) -> Contents:
    """Return what is in a folder, without following links."""
    return dict(_entries(folder))


def first_change(before: Contents, after: Contents) -> str | None:
    """Say which entry of a folder was removed, changed or added, the first by its path; None if there is none. Pure."""
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
