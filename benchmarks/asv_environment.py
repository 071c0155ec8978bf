"""A type of asv environment that shares the packages of the Python that runs asv, torch among them.

Making one takes a second; asv's own `virtualenv` installs torch for each. asv_overlay.py then installs each commit's
`dpbench.parallel`.
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
    """The requirements in asv's configuration are ignored, because this Python has them."""

    tool_name = "dpbench-shared"
    matches_python_fallback = False

    def __init__(self, conf: Any, python: str, requirements: Any, tagged_env_vars: Any) -> None:  # noqa: ARG002
        if python != f"{sys.version_info.major}.{sys.version_info.minor}":
            raise environment.EnvironmentUnavailable(f"{self.tool_name}: Python {python} is not the one that runs asv")
        self._python, self._requirements = python, {}  # the base class makes the environment's name from these
        super().__init__(conf, python, {}, tagged_env_vars)

    @classmethod
    def matches(cls, python: str) -> bool:
        """If no environment type matches a version, asv refuses it without a reason.

        So this type matches every version, and refuses the wrong ones in `__init__`. asv itself uses a path or
        ``same``.
        """
        return re.fullmatch(r"\d+\.\d+", python) is not None

    def _setup(self) -> None:
        log.info(f"Creating {self.name}, which shares {sys.prefix}")
        venv.EnvBuilder(symlinks=True).create(self._path)
        (site_packages,) = Path(self._path).glob("lib/python*/site-packages")
        # Python reads .pth files in the order of their names. This name sorts after dpbench_overlay.pth, so the working
        # tree's dpbench is found before one that is installed beside torch. The system's torch has several folders.
        shared = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        (site_packages / "shared_with_parent.pth").write_text("\n".join(shared) + "\n")
        pip = Path(self._path) / "bin" / "pip"  # without pip asv takes the environment as broken
        pip.write_text(_PIP)
        pip.chmod(0o755)

    def run(self, args: list[str], **options: Any) -> Any:
        return self.run_executable("python", args, **options)
