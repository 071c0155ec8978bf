"""B1 to B8 on several devices, as `test_better_*.py` on CPU lanes. B7: `sim_devices.py`."""

import contextvars
import copy
import dataclasses
import threading

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from dpbench.parallel import DataParallel, Policy
from tests.parallel.models import Call, mlp

FOUR = [f"sim:{i}" for i in range(4)]


def on_four(base, dispatch):
    return DataParallel(base.to("sim:0"), FOUR, policy=Policy(dispatch=dispatch))


def seen_on_devices(observe, dispatch):
    """The result of `observe` in each lane's forward, one per device."""
    seen = {}

    def forward(self, x):
        seen[x.device.index] = observe()
        return x

    on_four(Call(forward), dispatch)(torch.ones(4, device="cpu"))
    assert sorted(seen) == list(range(4))
    return list(seen.values())


@pytest.mark.parametrize("kind", ["sim", "cpu"])
def test_b1_autocast_reaches_replicas_with_its_dtype(kind, dispatch):
    def observe():
        return torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind), torch.is_autocast_cache_enabled()

    with torch.autocast(kind, torch.bfloat16, cache_enabled=False):
        assert seen_on_devices(observe, dispatch) == [(True, torch.bfloat16, False)] * 4


def test_b2_thread_local_state_reaches_replicas(dispatch):
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(5)
    assert seen_on_devices(variable.get, dispatch) == [5] * 4
    with torch.inference_mode():
        assert seen_on_devices(torch.is_inference_mode_enabled, dispatch) == [True] * 4
    with torch.device("meta"):
        assert seen_on_devices(lambda: torch.empty(1).is_meta, dispatch) == [True] * 4


def test_b2_saved_tensor_hooks_reach_replicas(dispatch):
    packed = []
    wrapper = on_four(mlp(), dispatch)
    with saved_tensors_hooks(lambda t: packed.append((t.device.index, t.shape)) or t, lambda t: t):
        wrapper(torch.randn(8, 5)).sum().backward()
    assert {(device, torch.Size([2, 5])) for device in range(4)} <= set(packed)


@pytest.mark.filterwarnings("ignore:the replicas of a compiled module")
@pytest.mark.parametrize("kind", ["wrapped", "in place"])
def test_b3_compiled_modules_give_right_results_and_are_not_destroyed(kind, dispatch):
    base, x = mlp(), torch.randn(8, 5)
    expected = copy.deepcopy(base)
    base.to("sim:0")
    module = torch.compile(base, backend="eager") if kind == "wrapped" else base
    if kind == "in place":
        base.compile(backend="eager")
    wrapper = DataParallel(module, FOUR, policy=Policy(dispatch=dispatch))
    expected(x).sum().backward()
    for _ in range(2):
        wrapper.zero_grad()
        wrapper(x).sum().backward()
        for ours, theirs in zip(module.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


def test_b4_constants_go_with_a_batch_smaller_than_the_devices(dispatch):
    wrapper, x = on_four(Call(lambda self, x, y=0, *, k: x * k + y), dispatch), torch.randn(2, 3)
    torch.testing.assert_close(wrapper(x, 1, k=2.0).cpu(), x * 2 + 1)


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    count: int
    nothing: None = None


def test_b5_dataclasses_are_gathered_field_by_field(dispatch):
    x = torch.randn(7, 2)
    out = on_four(Call(lambda self, x: Output(x, len(x))), dispatch)(x)
    assert out.logits.device == torch.device("sim:0")
    torch.testing.assert_close(out.logits.cpu(), x)
    assert (out.count, out.nothing) == ([2, 2, 2, 1], None)


def test_b6_parameters_are_found_inside_forward(dispatch):
    seen = []

    def forward(self, x):
        first = next(self.parameters())
        seen.append((x.device.index, first.device.index, first.dtype, first.requires_grad))
        return self.inner(x)

    on_four(Call(forward, inner=nn.Linear(5, 2)), dispatch)(torch.randn(8, 5))
    assert sorted(seen) == [(i, i, torch.float32, True) for i in range(4)]


def test_b8_wrappers_may_be_nested(dispatch):
    base = mlp()
    expected, x = copy.deepcopy(base), torch.randn(8, 5)
    base.to("sim:0")
    base[0] = DataParallel(base[0], ["sim:0", "sim:1"], policy=Policy(dispatch=dispatch))
    outer = DataParallel(base, ["sim:0"] * 2, policy=Policy(dispatch=dispatch))
    for _ in range(5):
        outer.zero_grad()
        outer(x).sum().backward()
    expected(x).sum().backward()
    for ours, theirs in zip(outer.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


@pytest.mark.parametrize("is_cached", [True, False])
def test_b8_one_wrapper_may_be_used_by_many_threads(is_cached, dispatch):
    base, wrong = mlp().to("sim:0"), []
    wrapper = DataParallel(base, FOUR, policy=Policy(dispatch=dispatch, cache_replicas=is_cached))

    def use(seed):
        x = torch.randn(8, 5, generator=torch.Generator().manual_seed(seed))
        for _ in range(5):
            try:
                torch.testing.assert_close(wrapper(x).cpu(), base(x.to("sim:0")).cpu())
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_b8_a_failed_forward_reports_all_errors_and_does_not_break_the_next(dispatch):
    def forward(self, x):
        if int(x[0, 0]) in (0, 1):  # these replicas read no weight, so they wait for no bucket
            raise KeyError(f"chunk {int(x[0, 0])}")
        return self.inner(x)

    base = Call(forward, inner=nn.Linear(1, 1, bias=False))
    policy = Policy(dispatch=dispatch, bucket_bytes=1)  # with one bucket the lane would wait at once
    wrapper, x = DataParallel(base.to("sim:0"), FOUR, policy=policy), torch.full((8, 1), 4.0)
    wrapper(x)
    threads = threading.active_count()
    for _ in range(3):
        with pytest.raises(KeyError, match="Caught KeyError in replica 0 on device 0") as caught:
            wrapper(torch.arange(4.0)[:, None])
        assert ["replica 1 on device 1" in note for note in caught.value.__notes__] == [True]
        with torch.no_grad():
            base.inner.weight.add_(1)  # no race with the failed forward's copies
        base.zero_grad()
        wrapper(x).sum().backward()
        assert base.inner.weight.grad.item() == 8 * 4
    assert threading.active_count() == threads
