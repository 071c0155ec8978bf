"""The heading of every figure: command, machine, versions and load."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from dpbench.cases.host import cpu_model, usable_cores

_ROOT = Path(__file__).parents[2]


def heading(module: str) -> str:
    """The command that runs `module`, the machine, the load average: three lines."""
    commit = subprocess.run(
        ["git", "-C", str(_ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    return "\n".join(
        [
            f"$ python -m {module} {' '.join(sys.argv[1:])}".rstrip(),
            f"{cpu_model()}, {usable_cores()} cores, {platform.system()} {platform.release()}, Python "
            f"{platform.python_version()}, torch {version('torch')}, dpbench {commit.stdout.strip() or 'no commit'}",
            f"load average before: {load}",
        ]
    )
