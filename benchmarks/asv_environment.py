"""An environment of asv that shares the packages of the Python that runs asv, torch among them.

Making one takes a second and installs nothing; asv's own `virtualenv` installs torch once for each. What differs from
commit to commit, `dpbench.parallel`, is put there by asv_overlay.py.
"""

import re
import sys
import venv
from pathlib import Path
from typing import Any

from asv import environment
from asv.console import log

_PIP = '#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n'


class SharedEnvironment(environment.Environment):
    """Only for the version of Python that runs asv. The configuration's requirements are what that Python has."""

    tool_name = "dpbench-shared"
    matches_python_fallback = False

    def __init__(self, conf: Any, python: str, requirements: Any, tagged_env_vars: Any) -> None:  # noqa: ARG002
        if python != f"{sys.version_info.major}.{sys.version_info.minor}":
            raise environment.EnvironmentUnavailable(f"{self.tool_name}: Python {python} is not the one that runs asv")
        self._python, self._requirements = python, {}  # the base class makes the environment's name of them first
        super().__init__(conf, python, {}, tagged_env_vars)

    @classmethod
    def matches(cls, python: str) -> bool:
        """Any version: what is no version asv uses as it is, and what nobody takes it refuses without a word."""
        return re.fullmatch(r"\d+\.\d+", python) is not None

    def _setup(self) -> None:
        log.info(f"Creating {self.name}, which shares {sys.prefix}")
        venv.EnvBuilder(symlinks=True).create(self._path)
        (site_packages,) = Path(self._path).glob("lib/python*/site-packages")
        # After dpbench_overlay.pth: paths come in the order of the files' names, and the working tree's dpbench goes
        # before one that is installed beside torch. With the system's torch there are several folders.
        shared = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        (site_packages / "shared_with_parent.pth").write_text("\n".join(shared) + "\n")
        pip = Path(self._path) / "bin" / "pip"  # asv takes an environment without one for broken
        pip.write_text(_PIP)
        pip.chmod(0o755)

    def run(self, args: list[str], **options: Any) -> Any:
        return self.run_executable("python", args, **options)
