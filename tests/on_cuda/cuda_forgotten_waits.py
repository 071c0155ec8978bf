"""Each wait and each `record_stream` is needed: without it the stand-in finds a race, as the simulator does."""

import pytest
import torch

from tests.cuda_stand_in import control
from tests.on_cuda.translated import translated

LANES = 4

if torch.cuda.device_count() < LANES:
    pytest.skip(f"these runs have {LANES} devices, and there are {torch.cuda.device_count()}", allow_module_level=True)

globals().update(translated("tests/parallel/simulated/sim_forgotten_waits.py", "tests.on_cuda._forgotten_waits"))
pytestmark = pytest.mark.races


@pytest.fixture(autouse=True)
def _a_race_is_found():
    """RaceError is RuntimeError here, so look at the list of races too."""
    yield
    assert control.take_races() != []
