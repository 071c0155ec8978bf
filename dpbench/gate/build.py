"""Install each commit into a folder of its own, from which its borrowed benchmarks import it.

    base/             the commit's files
    base-built/       what the build command installed
    base-scratch/     what benchmarks write

A commit's folder has a `.git`, from which tools read the version that a checkout has.
"""

import os
import shlex
import sys
from pathlib import Path

from dpbench.errors import GateError
from dpbench.gate.revisions import OF_GIT
from dpbench.processes.fence import SCRATCH
from dpbench.processes.interpret import ending, last_lines
from dpbench.processes.launch import Launcher
from dpbench.processes.start import child_command
from dpbench.processes.wrapper_of import built_of, scratch_of

_TIMEOUT_S = 3600.0
_SHOWN_LINES = 8


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
    """Return arguments for `env`: this Python's pip first, scratch in the gate's folder, no variable of git's.

    A build runs the commit's code, so it is fenced too.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    fixed = {"PATH": path, SCRATCH: str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    return [*(f"--unset={name}" for name in OF_GIT), *(f"{name}={value}" for name, value in fixed.items())]
