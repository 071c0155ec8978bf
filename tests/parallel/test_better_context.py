"""Better than stock: the caller's thread-local state reaches the replicas, and theirs stays inside."""

import contextvars

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dpbench.parallel import Policy, parallel_apply
from tests.parallel.models import Call, mlp
from tests.parallel.on_lanes import FIRST, KIND, LANES, wrap


def seen_in_replicas(observe, dispatch):
    """The results of `observe` in each replica's forward."""
    seen = []

    def forward(self, x):
        seen.append(observe())
        return x

    wrap(Call(forward), dispatch=dispatch)(torch.ones(LANES, device="cpu"))
    assert len(seen) == LANES
    return seen


@pytest.mark.parametrize("device_type", ["cpu", "cuda", "xpu"] if KIND == "cpu" else ["cpu", KIND])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_b1_autocast_reaches_replicas_with_its_dtype(device_type, dtype, dispatch):
    def observe():
        return (
            torch.is_autocast_enabled(device_type),
            torch.get_autocast_dtype(device_type),
            torch.is_autocast_cache_enabled(),
        )

    before = torch.get_autocast_dtype(device_type)
    torch.set_autocast_enabled(device_type, True)
    torch.set_autocast_dtype(device_type, dtype)
    torch.set_autocast_cache_enabled(False)
    try:
        assert set(seen_in_replicas(observe, dispatch)) == {(True, dtype, False)}
    finally:
        torch.set_autocast_enabled(device_type, False)
        torch.set_autocast_dtype(device_type, before)
        torch.set_autocast_cache_enabled(True)


def test_b1_replicas_compute_in_the_autocast_dtype(dispatch):
    wrapper = wrap(mlp(), dispatch=dispatch)
    with torch.autocast(KIND, torch.bfloat16):
        assert wrapper(torch.randn(8, 5)).dtype == torch.bfloat16
    assert wrapper(torch.randn(8, 5)).dtype == torch.float32


@pytest.mark.parametrize("call", ["wrapper", "function"])
def test_b1_a_cached_cast_of_the_bases_own_weights_is_not_used_again(call, dispatch):
    base, x = nn.Linear(5, 3, bias=False), torch.randn(8, 5, device=FIRST)
    wrapper = wrap(base, dispatch=dispatch)

    def forward():
        if call == "wrapper":
            return wrapper(x)
        return torch.cat(parallel_apply([base] * LANES, [*x.chunk(LANES)], policy=Policy(dispatch=dispatch)))

    with torch.autocast(KIND, torch.bfloat16), torch.no_grad():
        assert forward().any()
        base.weight.zero_()
        assert not forward().any()
        assert not base(x).any()


def test_b2_inference_mode_reaches_replicas_without_later_effect(dispatch):
    base = mlp()
    wrapper = wrap(base, dispatch=dispatch)
    x = torch.randn(8, 5)
    with torch.inference_mode():
        assert set(seen_in_replicas(torch.is_inference_mode_enabled, dispatch)) == {True}
        assert wrapper(x).is_inference()
    wrapper(x).sum().backward()  # memory that inference allocated on the lanes serves training
    assert base[0].weight.grad is not None


def test_b2_saved_tensor_hooks_reach_replicas(dispatch):
    packed = []
    wrapper = wrap(mlp(), dispatch=dispatch)
    x = torch.randn(8, 5)
    with saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
        wrapper(x).sum().backward()
    assert packed.count(torch.Size([2, 5])) == LANES  # each chunk, saved by the first layer


def test_b2_context_variables_reach_replicas_and_do_not_come_back(dispatch):
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(5)
    assert seen_in_replicas(variable.get, dispatch) == [5] * LANES
    seen_in_replicas(lambda: variable.set(6), dispatch)
    assert variable.get() == 5


def test_b2_the_flushing_of_denormal_numbers_reaches_replicas(dispatch):
    tiny, seen, x = torch.tensor(1e-40), [], torch.ones(LANES)
    wrapper = wrap(Call(lambda self, x: seen.append((tiny * 1).item() == 0) or x), dispatch=dispatch)
    try:
        for flushes in (False, True, False):
            if not torch.set_flush_denormal(flushes):
                pytest.skip("this CPU does not flush denormal numbers")
            wrapper(x)
            assert seen == [flushes] * LANES
            seen.clear()
    finally:
        torch.set_flush_denormal(False)


def test_b2_a_default_device_reaches_replicas(dispatch):
    with torch.device("meta"):
        seen = seen_in_replicas(lambda: torch.empty(1).device.type, dispatch)
    assert seen == ["meta"] * LANES


class Functions(TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("mode", "name"), [(Functions, "sin"), (Operators, "sin.default")])
def test_b2_modes_reach_replicas(mode, name, dispatch):
    wrapper = wrap(Call(lambda self, x: torch.sin(x)), dispatch=dispatch)
    with mode() as active:
        wrapper(torch.ones(LANES))
    assert active.names.count(name) == LANES


def test_b2_modes_do_not_stay_in_the_lanes(dispatch):
    wrapper = wrap(Call(lambda self, x: torch.sin(x)), dispatch=dispatch)
    with Functions() as active:
        wrapper(torch.ones(LANES))
    wrapper(torch.ones(LANES))
    assert active.names.count("sin") == LANES


@pytest.mark.parametrize(
    "leak",
    [
        lambda: torch.set_grad_enabled(False),
        lambda: torch._C._set_fwd_grad_enabled(False),
        lambda: torch.set_autocast_enabled("cpu", True),
        lambda: torch.set_autocast_dtype("cpu", torch.float16),
    ],
)
def test_b2_flags_that_a_forward_sets_do_not_outlast_it(leak, dispatch):
    def observe():
        state = (
            torch.is_grad_enabled(),
            torch._C._is_fwd_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
        )
        leak()
        return state

    before = (True, True, False, torch.bfloat16)
    assert seen_in_replicas(observe, dispatch) == [before] * LANES
    assert (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")) == (True, False)


def test_b2_a_changed_number_of_intra_op_threads_reaches_long_lived_lanes():
    before = torch.get_num_threads()
    seen = []

    def forward(self, x):
        seen.append(torch.get_num_threads())
        return x

    wrapper = wrap(Call(forward), dispatch="threads")
    try:
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            seen.clear()
            wrapper(torch.ones(LANES))
            assert seen == [count] * LANES
    finally:
        torch.set_num_threads(before)
