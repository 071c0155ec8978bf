"""`test_better_*.py` on simulated devices. Links that corrupt data are in `sim_devices.py`."""

import pytest
import torch

from tests.parallel import (
    test_better_compile,
    test_better_context,
    test_better_errors,
    test_better_forward,
    test_better_transforms,
)
from tests.parallel.models import Call
from tests.parallel.on_lanes import taken_from, wrap

CPU_ONLY = {
    test_better_compile: ["test_b3_a_compiled_wrapper_or_step_gives_right_results"],
    test_better_context: [  # simulated operators know no autocast
        "test_b1_replicas_compute_in_the_autocast_dtype",
        "test_b1_a_cached_cast_of_the_bases_own_weights_is_not_used_again",
    ],
    test_better_errors: ["test_b8_a_wrapper_may_call_itself"],  # its replicas are on other devices than its base
    test_better_forward: [],
    test_better_transforms: [],
}
"""Each file's tests that do not run on simulated devices."""
for module, names in CPU_ONLY.items():
    globals().update(taken_from(module, *names))


def test_b8_a_lane_that_reads_no_weight_and_fails_leaves_no_race(dispatch):
    def forward(self, x):
        if int(x[0, 0]) in (0, 1):  # these replicas read no weight, so they wait for no bucket
            raise KeyError(f"chunk {int(x[0, 0])}")
        return self.inner(x)

    base = Call(forward, inner=torch.nn.Linear(1, 1, bias=False))
    wrapper, x = wrap(base, dispatch=dispatch, bucket_bytes=1), torch.full((8, 1), 4.0)  # with one bucket it would wait
    wrapper(x)
    for _ in range(3):
        with pytest.raises(KeyError, match="Caught KeyError in replica 0 on device 0") as caught:
            wrapper(torch.arange(4.0)[:, None])
        assert ["replica 1 on device 1" in note for note in caught.value.__notes__] == [True]
        with torch.no_grad():
            base.inner.weight.add_(1)  # no race with the failed forward's copies
        base.zero_grad()
        wrapper(x).sum().backward()
        assert base.inner.weight.grad.item() == 8 * 4
