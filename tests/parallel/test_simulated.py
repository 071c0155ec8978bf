"""Runs the tests in ``simulated/``, each file in a process of its own: the simulator stays in the process it is in."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulated import NO_GPU, needs_simulator

FILES = sorted((Path(__file__).parent / "simulated").glob("sim_*.py"))


@needs_simulator
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_on_simulated_devices(path):
    command = [sys.executable, "-m", "pytest", "-q", "-o", "python_files=sim_*.py", "-p", "no:cacheprovider", str(path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=root, env=NO_GPU)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
