"""Install each commit into a folder of its own, from which its borrowed benchmarks import it.

    base/             the commit's files
    base-built/       what the build command installed
    base-scratch/     what benchmarks write

`git archive` has no `.git`, so tools that read a version from it are given one. It is equal on both sides.
"""

import os
import shlex
import sys
from pathlib import Path

from dpbench.errors import GateError
from dpbench.processes.fence import SCRATCH
from dpbench.processes.interpret import ending, last_lines
from dpbench.processes.launch import Launcher
from dpbench.processes.start import child_command
from dpbench.processes.wrapper_of import built_of, scratch_of

_TIMEOUT_S = 3600.0
_SHOWN_LINES = 8
_VERSION = "0.0"
_FIXED_VERSIONS = ("SETUPTOOLS_SCM_PRETEND_VERSION", "PBR_VERSION", "PDM_BUILD_SCM_VERSION")
"""setuptools_scm and hatch-vcs read the first one."""


def build(side: str, commit: Path, command: str, launch: Launcher) -> None:
    """Run the build command in the commit's folder, unless it is empty. Raises GateError, which names the `side`."""
    try:
        scratch_of(commit).mkdir()
        built_of(commit).mkdir() if command else None
    except OSError as error:
        raise GateError(f"{str(commit.parent)!r} cannot be written: {error.strerror}") from error
    if not command:
        return
    line = f"cd {shlex.quote(str(commit))} && {command.replace('{folder}', shlex.quote(str(built_of(commit))))}"
    folders = list(map(str, (commit, built_of(commit))))
    fenced = [*child_command("dpbench.processes.child.fenced"), *folders, "--", "sh", "-c", line, "build"]
    end = launch(["env", *_environment(scratch_of(commit)), *fenced], "", _TIMEOUT_S)
    if end.returncode:
        log = last_lines(end.tail)[-_SHOWN_LINES:]
        raise GateError(f"{side}: build: {command!r} {ending(end)}; its last lines: {' | '.join(log)}")


def _environment(scratch: Path) -> list[str]:
    """Return assignments for `env`: this Python's pip first, temporary files in the gate's folder, and a version.

    A build runs the commit's code, so it is fenced too.
    """
    versions = {name: _VERSION for name in _FIXED_VERSIONS if name not in os.environ}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    fixed = {"PATH": path, SCRATCH: str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    return [f"{name}={value}" for name, value in {**fixed, **versions}.items()]
