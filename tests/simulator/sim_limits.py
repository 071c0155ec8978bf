"""An unsupported feature raises an error with the name of the feature."""

import pytest
import torch
from torch import nn

sim = torch.get_device_module("sim")


@pytest.mark.parametrize(
    ("what", "do"),
    [
        ("fused LSTM cell", lambda x: nn.LSTM(3, 3).to(x.device)(x)),
        ("fused GRU cell", lambda x: nn.GRU(3, 3).to(x.device)(x)),
        ("pinned memory", lambda x: torch.ops.aten._to_copy(x, device="cpu", pin_memory=True)),
        ("pinned memory", torch.Tensor.pin_memory),
        ("resizing a tensor", lambda x: x.resize_(10)),
        ("setting a tensor's storage", lambda x: x.set_(torch.ones(2, device="sim:0"))),
        ("time", lambda x: sim.Event().elapsed_time(sim.Event())),
        ("layout torch.sparse_csr", lambda x: x[0].to_sparse_csr()),
    ],
)
def test_an_unsupported_feature_is_named(what, do):
    with pytest.raises(NotImplementedError, match=f"the simulator .*{what}"):
        do(torch.ones(2, 2, 3, device="sim:0"))


@pytest.mark.parametrize(
    "do", [lambda x: x @ x, lambda x: nn.functional.linear(x, x), lambda x: torch.bmm(x[None], x[None])]
)
def test_the_casts_of_autocast_are_refused(do):
    x = torch.ones(3, 3, device="sim:0")
    with (
        torch.autocast("sim", dtype=torch.bfloat16),
        pytest.raises(NotImplementedError, match="casts of autocast, here of"),
    ):
        do(x)
    with torch.autocast("sim", enabled=False):
        do(x)


def test_an_operator_without_a_cpu_kernel_is_named():
    with torch.library._scoped_library("dpbench_test", "DEF") as library:
        library.define("nowhere(Tensor x) -> Tensor")
        with pytest.raises(
            NotImplementedError, match=r"does not support dpbench_test.nowhere.default: torch has no CPU kernel"
        ):
            torch.ops.dpbench_test.nowhere(torch.ones(2, device="sim:0"))
