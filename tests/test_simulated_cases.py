"""Runs every ``case_*.py`` of the suite, each folder's in a child process of its own.

Simulated devices are for a whole process, in which torch answers differently: `torch.accelerator`, and so the devices
that the stock wrapper takes by default.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulated import NO_GPU, needs_simulator

TESTS = Path(__file__).parent


@needs_simulator
@pytest.mark.parametrize("folder", sorted({str(case.parent.relative_to(TESTS)) for case in TESTS.rglob("case_*.py")}))
def test_the_cases_pass_on_simulated_devices(folder):
    child = [sys.executable, "-m", "pytest", "-q", "-o", "python_files=case_*.py", "-p", "tests.simulator.plugin"]
    done = subprocess.run(
        [*child, f"tests/{folder}"],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=NO_GPU,
    )
    assert done.returncode == 0, done.stdout + done.stderr
