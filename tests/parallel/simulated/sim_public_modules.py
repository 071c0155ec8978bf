"""`test_public_modules.py` on simulated devices."""

from tests.parallel import test_public_modules
from tests.parallel.on_lanes import taken_from

globals().update(taken_from(test_public_modules))
