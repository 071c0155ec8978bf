"""`test_better_*.py` on simulated devices. Links that corrupt data are in `sim_devices.py`."""

import pytest
import torch

from tests.parallel import (
    test_better_context,
    test_better_errors,
    test_better_forward,
    test_better_transforms,
    test_buffers,
)
from tests.parallel.models import Call
from tests.parallel.on_lanes import taken_from, wrap

CPU_ONLY = {
    test_better_context: [],
    test_better_errors: ["test_b8_a_wrapper_may_call_itself"],  # its replicas are on other devices than its base
    test_better_forward: [],
    test_better_transforms: [],
    test_buffers: [  # their tensors are on the CPU, or are asked for their real addresses
        "test_a_buffer_that_a_forward_resizes_does_not_grow_over_weights",
        "test_an_empty_buffer_that_a_forward_resizes_does_not_grow_over_another",
        "test_unbucketed_tensors_do_not_keep_others_from_arriving",
        "test_a_buffer_of_a_subclass_arrives_as_one",
    ],
}
"""Each file's tests that do not run on simulated devices."""
for module, names in CPU_ONLY.items():
    globals().update(taken_from(module, *names))


LAZY = {
    "negated": lambda x: torch.complex(x, x).conj().imag,
    "conjugated": lambda x: torch.complex(x, x).conj(),
    "both": lambda x: torch.complex(x, x).conj()._neg_view(),
}


@pytest.mark.parametrize("place", ["cpu", "sim:0"])
@pytest.mark.parametrize("kind", LAZY)
def test_lazily_conjugated_and_negated_tensors_may_be_input_weight_and_gradient(kind, place):
    base = Call(lambda self, x: x * self.weight.conj(), weight=torch.nn.Parameter(LAZY[kind](torch.randn(3))))
    base.register_buffer("other", LAZY[kind](torch.randn(3)))
    x = LAZY[kind](torch.randn(8, 3))
    base(x).abs().sum().backward()
    wanted, base.weight.grad = base.weight.grad, None
    out = wrap(base)(x.to(place))
    out.abs().sum().backward()
    torch.testing.assert_close([out.detach().cpu(), base.weight.grad.cpu()], [base.cpu()(x).detach(), wanted])


def test_a_forward_may_write_to_a_batch_on_the_first_device():
    def forward(self, x):
        x += self.shift
        return self.last(x)

    base = Call(forward, shift=torch.nn.Parameter(torch.randn(3)), last=torch.nn.Linear(3, 2))
    x = torch.randn(8, 3)
    wanted = base(x.clone())
    torch.testing.assert_close(wrap(base)(x.to("sim:0")).cpu(), wanted)


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
