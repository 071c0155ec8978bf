"""Install each commit into a folder of its own, from which its borrowed benchmarks import it.

    base/         the commit's files           base-built/      what the build command installed
    base-work/    what benchmarks write

`git archive` has no `.git`, so tools that read a version from it are given one. It is equal on both sides.
"""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from dpbench.errors import GateError
from dpbench.processes.interpret import ending, last_lines
from dpbench.processes.launch import Launcher
from dpbench.processes.messages import Side

_TIMEOUT_S = 3600.0
_VERSION = "0.0"
_FIXED_VERSIONS = ("SETUPTOOLS_SCM_PRETEND_VERSION", "PBR_VERSION", "PDM_BUILD_SCM_VERSION")
"""setuptools_scm and hatch-vcs read the first one."""


class BuildError(GateError):
    """A build command failed. `log` has the last lines of its output."""

    def __init__(self, text: str, log: list[str]) -> None:
        super().__init__(text)
        self.log = log


def built_side(name: str, commit: Path, command: str, launch: Launcher, progress: Callable[[str], object]) -> Side:
    """Run the build command in the commit's folder, and return the side. Raises BuildError."""
    built, work = (commit.with_name(f"{commit.name}-{part}") for part in ("built", "work"))
    for folder in (built, work):
        folder.mkdir()
    if not command:
        paths = tuple(str(folder) for folder in (commit, commit / "src") if folder.is_dir())
        return Side(folder=str(commit), paths=paths, scratch=str(work))
    progress(f"building {name}")
    line = f"cd {shlex.quote(str(commit))} && {command.replace('{folder}', shlex.quote(str(built)))}"
    end = launch(["env", *_environment(work), "sh", "-c", line, "build"], "", _TIMEOUT_S)
    log = last_lines(end.tail)
    if end.returncode or end.timed_out_after_s is not None:
        last = log[-1] if log else "without output"
        raise BuildError(f"{name}: build: {command!r} {ending(end)}: {last}; allowed: a command that succeeds", log)
    return Side(folder=str(commit), paths=(str(built),), scratch=str(work))


def _environment(work: Path) -> list[str]:
    """Return assignments for `env`: this Python's pip first, temporary files in the gate's folder, and a version."""
    versions = {name: _VERSION for name in _FIXED_VERSIONS if name not in os.environ}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    fixed = {"PATH": path, "TMPDIR": str(work), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    return [f"{name}={value}" for name, value in {**fixed, **versions}.items()]
