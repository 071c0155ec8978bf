"""`test_seeds.py` on simulated devices, but for fused steps. `sim_devices.py` has bases elsewhere."""

from tests.parallel import test_seeds
from tests.parallel.on_lanes import taken_from

ON_CPU = [
    "test_k05_a_fused_step_is_seen_at_the_next_forward",
    "test_k03_a_base_elsewhere_is_an_error_naming_both_devices",
]
globals().update(taken_from(test_seeds, *ON_CPU))
