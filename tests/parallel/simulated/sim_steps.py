"""`test_steps.py` on simulated devices: the same numbers, and no race."""

from tests.parallel import test_steps
from tests.parallel.on_lanes import taken_from

globals().update(taken_from(test_steps))
