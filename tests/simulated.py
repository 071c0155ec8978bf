"""How tests run on simulated devices: each ``sim_*.py`` file in a process of its own.

Run one file by hand, with any options of pytest::

    .venv/bin/python -m tests.simulated tests/simulator/sim_tensors.py -k state_dicts
"""

import os
import sys

import pytest
import torch

from dpbench.simulator.torch_versions import why_unsupported

NO_GPU = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
"""The environment of a child process that must not see a GPU: the simulator refuses to start beside one."""
_why_unsupported = why_unsupported(torch.__version__)
needs_simulator = pytest.mark.skipif(_why_unsupported is not None, reason=str(_why_unsupported))


def run(arguments: list[str]) -> int:
    """Run pytest with simulated devices in this process, and return its exit status."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # CUDA reads it when it starts, and importing torch does not start CUDA
    options = ["-q", "-o", "python_files=sim_*.py", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    return pytest.main([*options, "-p", "tests.simulated_plugin", *arguments])


def run_and_exit(arguments: list[str], output: str) -> None:
    """Write pytest's output to the file `output`, and exit this process with its status."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.exit(run(arguments))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
