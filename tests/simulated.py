"""What tests on simulated devices need: a torch the simulator was tested with, and processes that see no GPU."""

import os

import pytest
import torch

from dpbench.simulator.backend import TESTED, is_tested

NO_GPU = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
needs_simulator = pytest.mark.skipif(
    not is_tested(torch.__version__),
    reason=f"the simulator was tested with torch {', '.join(TESTED)}, not with {torch.__version__}",
)
