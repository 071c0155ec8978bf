"""An unsupported feature raises an error with the name of the feature."""

import pytest
import torch

from dpbench.simulator.unsupported import together

sim = torch.get_device_module("sim")


@pytest.mark.parametrize(
    ("what", "do"),
    [
        ("pinned memory", lambda x: torch.ops.aten._to_copy(x, device="cpu", pin_memory=True)),
        ("pinned memory", torch.Tensor.pin_memory),
        ("setting a tensor's storage", lambda x: x.set_(torch.ones(2, device="sim:0"))),
        ("time", lambda x: sim.Event().elapsed_time(sim.Event())),
        ("layout torch.sparse_csr", lambda x: x[0].to_sparse_csr()),
    ],
)
def test_an_unsupported_feature_is_named(what, do):
    with pytest.raises(NotImplementedError, match=f"the simulator .*{what}"):
        do(torch.ones(2, 2, 3, device="sim:0"))


def unsupported_step(x):
    x.set_(torch.ones(2, device="sim:0"))
    torch.ops.aten._pin_memory(x)
    return x.to_sparse_csr().crow_indices()  # fails, because it is none


def test_what_is_unsupported_is_named_at_once():
    x, words = torch.ones(3, 3, device="sim:0"), r"aten::set_: .*; .*aten::_pin_memory: .*; .*sparse_csr"
    with pytest.raises(NotImplementedError, match=words), together():
        unsupported_step(x)
    with pytest.raises(NotImplementedError, match=r"set_: setting a tensor's storage$"):
        unsupported_step(x)
    with pytest.raises(ZeroDivisionError), together():
        1 / 0  # noqa: B018


def test_an_operator_without_a_cpu_kernel_is_named():
    with torch.library._scoped_library("dpbench_test", "DEF") as library:
        library.define("nowhere(Tensor x) -> Tensor")
        with pytest.raises(
            NotImplementedError, match=r"does not support dpbench_test.nowhere.default: torch has no CPU kernel"
        ):
            torch.ops.dpbench_test.nowhere(torch.ones(2, device="sim:0"))
