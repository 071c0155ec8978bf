"""``Policy(skip_unchanged=True)`` sends all tensors but those that provably did not change."""

import gc

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel import buckets as flat
from tests.parallel.models import Call, mlp, normed

LANES = 3


def wrap(base, **policy):
    return DataParallel(base, ["cpu"] * LANES, policy=Policy(skip_unchanged=True, dispatch="sequence", **policy))


def infer(wrapper, batch=6):
    with torch.no_grad():
        x = torch.randn(batch, 5)
        torch.testing.assert_close(wrapper(x), wrapper.module(x))


def write_unseen_and_report(wrapper):
    wrapper.module[0].weight.data.mul_(2)
    wrapper.mark_dirty()


def step_on_others(wrapper):
    other = nn.Linear(2, 2)
    with torch.enable_grad():
        other(torch.randn(1, 2)).sum().backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()


def step_on_frozen(wrapper):
    for parameter in wrapper.requires_grad_(False).parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(wrapper.parameters(), lr=0.1, fused=True).step()


BETWEEN = {
    "nothing": (lambda wrapper: None, False),
    "in place": (lambda wrapper: wrapper.module[0].weight.mul_(2), True),
    "data assigned": (lambda wrapper: setattr(wrapper.module[0].weight, "data", wrapper.module[0].weight * 2), True),
    "load": (lambda wrapper: wrapper.load_state_dict({k: v * 2 for k, v in wrapper.state_dict().items()}), True),
    "new parameter": (lambda wrapper: setattr(wrapper.module[0], "bias", nn.Parameter(torch.ones(7))), True),
    "reported": (write_unseen_and_report, True),
    "a fused step on frozen parameters with gradients": (step_on_frozen, True),
    "a step on others' parameters": (step_on_others, False),
}


@pytest.mark.parametrize(("change", "is_sent"), BETWEEN.values(), ids=BETWEEN)
def test_a_change_is_sent_once_and_nothing_else(change, is_sent, sent):
    wrapper = wrap(mlp())
    infer(wrapper)
    assert sent() == LANES - 1
    with torch.no_grad():
        change(wrapper)
    infer(wrapper)
    assert sent() == is_sent * (LANES - 1)
    infer(wrapper)
    assert sent() == 0


def test_a_lane_left_out_by_a_short_batch_gets_the_weights_when_it_is_used(sent):
    wrapper = wrap(mlp())
    infer(wrapper, batch=2)
    assert sent() == 1
    infer(wrapper, batch=6)
    assert sent() == 1


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_a_fused_optimizers_step_is_sent(kind, sent):
    # A fused optimizer writes parameters without raising their version counters.
    wrapper = wrap(mlp())
    optimizer = getattr(torch.optim, kind)(wrapper.parameters(), lr=0.1, fused=True)
    for _ in range(3):
        sent()
        infer(wrapper)
        assert sent() == LANES - 1
        optimizer.zero_grad()
        wrapper(torch.randn(6, 5)).sum().backward()
        optimizer.step()


def test_a_fused_optimizer_that_drops_the_gradients_in_its_step_is_seen(sent):
    class Dropping(torch.optim.Optimizer):
        def step(self, closure=None):
            for parameter in self.param_groups[0]["params"]:
                parameter.data.sub_(parameter.grad)  # raises no version counter, like a fused kernel
                parameter.grad = None

    wrapper = wrap(mlp())
    optimizer = Dropping(wrapper.parameters(), {})
    for _ in range(3):
        sent()
        infer(wrapper)
        assert sent() == LANES - 1
        wrapper(torch.randn(6, 5)).sum().backward()
        optimizer.step()


def test_a_fused_step_that_fails_half_way_is_seen():
    wrapper = wrap(mlp())
    infer(wrapper)
    first, last = wrapper.module[0].weight, wrapper.module[2].weight
    first.grad, last.grad = torch.ones_like(first), torch.ones_like(last).to_sparse()
    before = first.tolist()
    with pytest.raises(RuntimeError, match="sparse"):
        torch.optim.SGD([{"params": [first]}, {"params": [last]}], lr=0.1, fused=True).step()
    assert first.tolist() != before
    infer(wrapper)


def test_a_fused_step_is_seen_after_a_forward_in_its_closure():
    def forward_of_now():
        infer(wrapper)
        return torch.zeros(())

    wrapper = wrap(mlp())
    for parameter in wrapper.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(wrapper.parameters(), lr=0.1, fused=True).step(forward_of_now)
    infer(wrapper)


def test_frozen_parameters_are_sent_once(sent):
    base = mlp()
    base[0].requires_grad_(False)
    wrapper = wrap(base)
    optimizer = torch.optim.SGD(base.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        wrapper(torch.randn(6, 5)).sum().backward()
        optimizer.step()
        assert sent() == (2 if step == 0 else 1) * (LANES - 1)


def test_buffers_are_always_sent(sent):
    wrapper = wrap(normed().eval())
    infer(wrapper)
    first = sent()
    wrapper.module[1].running_mean.data.add_(1)  # raises no version counter, like training
    infer(wrapper)
    assert 0 < sent() < first


def test_weights_sent_again_go_to_the_same_memory():
    places = []
    base = Call(lambda self, x: places.append(self.weight.data_ptr()) or x, weight=nn.Parameter(torch.ones(1)))
    wrapper = wrap(base)
    for _ in range(3):
        wrapper(torch.ones(LANES))
        with torch.no_grad():
            base.weight.mul_(2)
    assert len(set(places)) == LANES


def test_a_change_is_sent_although_an_older_graph_needs_the_old_values():
    wrapper = wrap(Call(lambda self, x: x * self.weight, weight=nn.Parameter(torch.ones(1))))
    x = torch.ones(LANES, requires_grad=True)
    out = wrapper(x)
    wrapper.module.weight.data = torch.full((1,), 2.0)
    assert wrapper(x).tolist() == [2.0] * LANES
    out.sum().backward()
    assert x.grad.tolist() == [1.0] * LANES


def test_values_sent_by_a_failed_forward_are_not_taken_for_the_former_values(monkeypatch):
    def fail_on_the_last_lane(*args):
        left.append(copy_into(*args))
        if len(left) == LANES - 1:
            raise MemoryError

    left = []
    copy_into = flat.copy_into
    wrapper = wrap(nn.Linear(5, 3))
    infer(wrapper)
    weight = wrapper.module.weight
    before = weight.data
    weight.data = before * 2
    monkeypatch.setattr(flat, "copy_into", fail_on_the_last_lane)
    with pytest.raises(MemoryError):
        infer(wrapper)
    monkeypatch.undo()
    weight.data = before
    infer(wrapper)


def test_memory_freed_and_allocated_again_counts_as_changed():
    wrapper = wrap(nn.Linear(5, 64))
    weight = wrapper.module.weight
    for batch in (6, 2, 6):  # a short batch leaves a lane out, with older values
        infer(wrapper, batch)
        before = weight.data_ptr()
        for _ in range(50):
            weight.data = weight.data * 0.9
            if weight.data_ptr() == before:
                break
    infer(wrapper)


def test_mark_dirty_does_nothing_without_devices(monkeypatch):
    monkeypatch.setattr("dpbench.parallel.devices._get_available_device_type", lambda: None)
    wrapper = DataParallel(mlp(), policy=Policy(skip_unchanged=True))
    wrapper.mark_dirty()
    infer(wrapper)


def test_inference_tensors_count_as_changed(sent):
    with torch.inference_mode():
        base = mlp()
    wrapper = wrap(base)
    infer(wrapper)
    infer(wrapper)
    assert sent() == 2 * (LANES - 1)


def test_the_change_watch_ends_with_its_wrapper():
    gc.collect()
    hooks = _global_optimizer_pre_hooks, _global_optimizer_post_hooks
    before = [*map(len, hooks)]
    wrapper = wrap(mlp())
    assert [*map(len, hooks)] == [count + 1 for count in before]
    del wrapper
    gc.collect()
    assert [*map(len, hooks)] == before


def test_without_the_technique_everything_is_sent_every_time(sent):
    wrapper = DataParallel(mlp(), ["cpu"] * LANES)
    infer(wrapper)
    infer(wrapper)
    wrapper.mark_dirty()
    assert sent() == 2 * (LANES - 1)
