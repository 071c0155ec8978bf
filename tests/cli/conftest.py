import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def grown(seconds: float) -> float:
    """Return a time limit that grows with the load: that of a machine with a process for each core or fewer."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.fixture
def dpbench(tmp_path):
    """Call the command line in an empty folder; the call returns the finished process."""

    def call(*words, timeout_s=240, **environment):
        return subprocess.run(
            [sys.executable, "-m", "dpbench", *map(str, words)],
            check=False,
            cwd=tmp_path,
            env=os.environ
            | {"PYTHONPATH": str(ROOT), "GIT_DIR": str(tmp_path / "none")}
            | environment,  # so that no commit can change meanwhile
            capture_output=True,
            text=True,
            timeout=grown(timeout_s),
        )

    return call
