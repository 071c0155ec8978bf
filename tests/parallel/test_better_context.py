"""B1 to B9: where the wrapper must be better than ``torch.nn.DataParallel``."""

import contextvars
import copy
import dataclasses
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.forward_ad import dual_level, make_dual
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dpbench.parallel import DataParallel, Policy, gather
from tests.parallel.models import Call, mlp

LANES = 3


def wrapped(forward, dispatch, **members):
    return DataParallel(Call(forward, **members), ["cpu"] * LANES, policy=Policy(dispatch=dispatch))


def seen_in_replicas(observe, dispatch):
    """What `observe` tells in each replica's forward."""
    seen = []

    def forward(self, x):
        seen.append(observe())
        return x

    wrapped(forward, dispatch)(torch.ones(LANES, device="cpu"))
    assert len(seen) == LANES
    return seen


@pytest.mark.parametrize("device_type", ["cpu", "cuda", "xpu"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_b1_autocast_reaches_replicas_with_its_dtype(device_type, dtype, dispatch):
    def observe():
        return (
            torch.is_autocast_enabled(device_type),
            torch.get_autocast_dtype(device_type),
            torch.is_autocast_cache_enabled(),
        )

    torch.set_autocast_enabled(device_type, True)
    torch.set_autocast_dtype(device_type, dtype)
    torch.set_autocast_cache_enabled(False)
    try:
        assert set(seen_in_replicas(observe, dispatch)) == {(True, dtype, False)}
    finally:
        torch.set_autocast_enabled(device_type, False)
        torch.set_autocast_dtype(device_type, torch.bfloat16 if device_type == "cpu" else torch.float16)
        torch.set_autocast_cache_enabled(True)


def test_b1_replicas_compute_in_the_autocast_dtype(dispatch):
    wrapper = DataParallel(mlp(), ["cpu"] * LANES, policy=Policy(dispatch=dispatch))
    with torch.autocast("cpu", torch.bfloat16):
        assert wrapper(torch.randn(6, 5)).dtype == torch.bfloat16
    assert wrapper(torch.randn(6, 5)).dtype == torch.float32


def test_b2_inference_mode_reaches_replicas_and_leaves_no_trace(dispatch):
    base = mlp()
    wrapper = DataParallel(base, ["cpu"] * LANES, policy=Policy(dispatch=dispatch))
    x = torch.randn(6, 5)
    with torch.inference_mode():
        assert set(seen_in_replicas(torch.is_inference_mode_enabled, dispatch)) == {True}
        assert wrapper(x).is_inference()
    wrapper(x).sum().backward()  # what inference left in the lanes serves training
    assert base[0].weight.grad is not None


def test_b2_saved_tensor_hooks_reach_replicas(dispatch):
    packed = []
    wrapper = DataParallel(mlp(), ["cpu"] * LANES, policy=Policy(dispatch=dispatch))
    x = torch.randn(6, 5)
    with saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
        wrapper(x).sum().backward()
    assert packed.count(torch.Size([2, 5])) == LANES  # each chunk, saved by the first layer


def test_b2_context_variables_reach_replicas_and_come_not_back(dispatch):
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(5)
    assert seen_in_replicas(variable.get, dispatch) == [5] * LANES
    seen_in_replicas(lambda: variable.set(6), dispatch)
    assert variable.get() == 5


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
    wrapper = wrapped(lambda self, x: torch.sin(x), dispatch)
    with mode() as active:
        wrapper(torch.ones(LANES))
    assert active.names.count(name) == LANES


TRANSFORMS = {
    "vmap": lambda f, x: torch.func.vmap(f)(torch.stack([x, 2 * x])),
    "grad": lambda f, x: torch.func.grad(lambda x: f(x).square().sum())(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,))[1],
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_b2_inputs_may_be_transformed_by_torch_func_and_leave_no_trace(transform, dispatch):
    base, x = mlp().requires_grad_(False), torch.randn(6, 5)
    wrapper = DataParallel(base, ["cpu"] * LANES, policy=Policy(dispatch=dispatch))
    torch.testing.assert_close(transform(wrapper, x), transform(base, x))
    torch.testing.assert_close(wrapper(x), base(x))


def with_tangents(f, weight):
    with dual_level():
        return f(make_dual(weight, weight))


WEIGHTS = {
    "vmap": lambda f, w: torch.func.vmap(f)(torch.stack([w, w])),
    "grad": lambda f, w: torch.func.grad(lambda w: f(w).sum())(w),
    "jvp": lambda f, w: torch.func.jvp(f, (w,), (w,)),
    "dual": with_tangents,
}


@pytest.mark.parametrize("transform", WEIGHTS.values(), ids=WEIGHTS)
def test_b2_weights_that_are_transformed_are_refused_for_their_derivatives_would_be_wrong(transform, dispatch):
    base, x = nn.Linear(5, 3, bias=False), torch.randn(6, 5)
    wrapper = DataParallel(base, ["cpu"] * LANES, policy=Policy(dispatch=dispatch))
    weight = base.weight.detach()
    with pytest.raises(NotImplementedError, match="parameters and buffers of `DataParallel` cannot be"):
        transform(lambda w: torch.func.functional_call(wrapper, {"module.weight": w}, x), weight)
    torch.testing.assert_close(wrapper(x), base(x))


@pytest.mark.parametrize(
    "leak",
    [
        lambda: torch.set_grad_enabled(False),
        lambda: torch._C._set_fwd_grad_enabled(False),
        lambda: torch.set_autocast_enabled("cpu", True),
        lambda: torch.set_autocast_dtype("cpu", torch.float16),
    ],
)
def test_b2_what_a_forward_sets_does_not_outlast_it(leak, dispatch):
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

    wrapper = wrapped(forward, "threads")
    try:
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            seen.clear()
            wrapper(torch.ones(LANES))
            assert seen == [count] * LANES
    finally:
        torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore:the replicas of a compiled module")
@pytest.mark.parametrize("kind", ["wrapped", "in place", "child"])
def test_b3_compiled_modules_give_right_results_and_stay_whole(kind, dispatch):
    base = mlp()
    expected, x = copy.deepcopy(base), torch.randn(6, 5)
    module = base
    if kind == "wrapped":
        module = torch.compile(base, backend="eager")
    elif kind == "in place":
        base.compile(backend="eager")
    else:
        base[0] = torch.compile(base[0], backend="eager")
    names = [name for name, _ in module.named_parameters()]
    wrapper = DataParallel(module, ["cpu"] * LANES, policy=Policy(dispatch=dispatch))
    expected(x).sum().backward()
    for _ in range(2):
        module.zero_grad()
        wrapper(x).sum().backward()
        assert [name for name, _ in module.named_parameters()] == names
        for ours, theirs in zip(module.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)
    with torch.no_grad():
        base[2].weight.mul_(2)  # each replica has its own weights, none the compiled base's old ones
        torch.testing.assert_close(wrapper(x), module(x))


@pytest.mark.parametrize("kind", ["wrapper", "step"])
def test_b3_a_compiled_wrapper_or_step_gives_right_results(kind, dispatch):
    base, x = mlp(), torch.randn(6, 5)
    wrapper = DataParallel(base, ["cpu"] * LANES, policy=Policy(dispatch=dispatch))
    call = wrapper if kind == "wrapper" else lambda x: wrapper(x) * 1
    compiled = torch.compile(call, backend="aot_eager")
    want = torch.autograd.grad(base(x).square().sum(), list(base.parameters()))
    for _ in range(2):
        got = torch.autograd.grad(compiled(x).square().sum(), list(base.parameters()))
        torch.testing.assert_close(got, want)
        assert len(wrapper._replicas._sets) == 1


@pytest.mark.filterwarnings("ignore:the replicas of a compiled module")
def test_b3_a_module_compiled_in_place_runs_as_its_replica():
    seen = []

    def forward(self, x):
        seen.append("_is_replica" in self.__dict__)
        return x

    base = Call(forward)
    wrapper = DataParallel(base, ["cpu"] * LANES)
    wrapper(torch.ones(LANES))
    base.compile(backend="eager")  # after the first forward too
    wrapper(torch.ones(LANES))
    assert seen == [True] * (2 * LANES)


def test_b3_running_eagerly_is_said():
    wrapper = DataParallel(torch.compile(mlp(), backend="eager"), ["cpu"] * LANES)
    with pytest.warns(UserWarning, match="replicas of a compiled module run it eagerly"):
        wrapper(torch.randn(6, 5))


def test_b4_constants_go_with_a_batch_smaller_than_the_devices(dispatch):
    wrapper = DataParallel(Call(lambda self, x, y=0, *, k: x * k + y), ["cpu"] * 4, policy=Policy(dispatch=dispatch))
    x = torch.randn(2, 3)
    torch.testing.assert_close(wrapper(x, k=2.0), x * 2)
    torch.testing.assert_close(wrapper(x, 1, k=2.0), x * 2 + 1)
    torch.testing.assert_close(wrapper(1, y=x, k=3), x + 3)


@dataclasses.dataclass(frozen=True)
class Output:
    logits: torch.Tensor
    parts: dict[str, torch.Tensor]
    name: str
    count: int
    nothing: Any = None
    derived: Any = dataclasses.field(init=False, default=None)


def test_b5_dataclasses_are_gathered_field_by_field(dispatch):
    wrapper = wrapped(lambda self, x: Output(x, {"twice": 2 * x}, "chunk", len(x)), dispatch)
    x = torch.randn(7, 2)
    out = wrapper(x)
    assert type(out) is Output
    torch.testing.assert_close(out.logits, x)
    torch.testing.assert_close(out.parts["twice"], 2 * x)
    assert (out.name, out.count, out.nothing) == (["chunk"] * 3, [3, 3, 1], None)


@pytest.mark.parametrize(
    "values",
    [[1, 2], [0.5, 1.5], [True, False], ["a", "b"], [b"a", b"b"], [{1}, {2}], [torch.Size([2]), torch.Size([1])]],
)
def test_b5_other_values_become_a_list_with_one_entry_per_replica(values):
    assert gather(values, "cpu") == values
    assert gather([{"v": value} for value in values], "cpu") == {"v": values}
    assert gather([(value,) for value in values], "cpu") == (values,)


def test_b5_none_stays_none():
    assert gather([None, None], "cpu") is None
    assert gather([{"x": None}, {"x": None}], "cpu") == {"x": None}


def test_b6_parameters_are_found_inside_forward(dispatch):
    seen = []

    def forward(self, x):
        first = next(self.parameters())
        seen.append((first.device.type, first.dtype, first.requires_grad, [n for n, _ in self.named_parameters()]))
        return self.inner(x)

    base = Call(forward, inner=nn.Linear(5, 2))
    wrapper = DataParallel(base, ["cpu"] * LANES, policy=Policy(dispatch=dispatch))
    wrapper(torch.randn(6, 5))
    assert seen == [("cpu", torch.float32, True, ["inner.weight", "inner.bias"])] * LANES


def test_b8_one_wrapper_may_be_used_by_many_threads(dispatch):
    base = mlp()
    wrapper = DataParallel(base, ["cpu"] * LANES, policy=Policy(dispatch=dispatch))
    wrong = []

    def use(seed):
        x = torch.randn(6, 5, generator=torch.Generator().manual_seed(seed))
        for _ in range(20):
            if not torch.allclose(wrapper(x), base(x), atol=1e-6):
                wrong.append(seed)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_b8_a_wrapper_may_call_itself(dispatch):
    def forward(self, x):
        return self.inner(x) if len(x) == 1 else wrapper(x)

    wrapper = wrapped(forward, dispatch, inner=nn.Linear(2, 2))
    x = torch.randn(9, 2)
    for _ in range(3):  # a crew that is back too early is shared the second time, and waits for itself
        torch.testing.assert_close(wrapper(x), wrapper.module.inner(x))


def test_b8_wrappers_may_be_nested(dispatch):
    policy = Policy(dispatch=dispatch)
    base = mlp()
    expected = copy.deepcopy(base)
    base[0] = DataParallel(base[0], ["cpu"] * 2, policy=policy)
    outer = DataParallel(base, ["cpu"] * 2, policy=policy)
    x = torch.randn(8, 5)
    for _ in range(3):
        outer.zero_grad()
        outer(x).sum().backward()
    expected(x).sum().backward()
    for ours, theirs in zip(outer.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def failing_on(chunks):
    def forward(self, x):
        if int(x[0]) in chunks:
            raise KeyError(f"chunk {int(x[0])}")
        return x

    return forward


def test_b8_all_errors_are_told_and_the_first_is_raised(dispatch):
    wrapper = wrapped(failing_on({1, 2}), dispatch)
    with pytest.raises(KeyError) as caught:
        wrapper(torch.arange(3.0))
    assert "Caught KeyError in replica 1 on device cpu.\nOriginal Traceback" in str(caught.value.args[0])
    assert "chunk 1" in str(caught.value.args[0])
    (note,) = caught.value.__notes__
    assert note.startswith("Also caught KeyError in replica 2 on device cpu")
    assert "chunk 2" in note


def test_b8_a_failed_forward_does_not_break_the_next(dispatch):
    wrapper = wrapped(failing_on({1}), dispatch)
    for _ in range(3):
        with pytest.raises(KeyError):
            wrapper(torch.arange(3.0))
        torch.testing.assert_close(wrapper(torch.zeros(3)), torch.zeros(3))


def test_b8_an_interrupt_goes_through(dispatch):
    def forward(self, x):
        if int(x[0]) == 1:
            raise KeyboardInterrupt
        return x

    wrapper = wrapped(forward, dispatch)
    with pytest.raises(KeyboardInterrupt):
        wrapper(torch.arange(3.0))
    torch.testing.assert_close(wrapper(torch.zeros(3)), torch.zeros(3))
