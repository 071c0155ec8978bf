"""``accumulate()`` with weights and buffers that change, copies, threads and other devices."""

import copy
import pickle
import threading

import pytest
import torch

from tests.parallel.accumulating import (
    LANES,
    accumulate,
    assert_equal_grads,
    batch,
    is_empty,
    loss_of,
    plainly,
    wrap,
)
from tests.parallel.models import normed
from tests.parallel.remote import take_remote_paths


@pytest.fixture(autouse=True)
def _remote(monkeypatch):
    take_remote_paths(monkeypatch)


def test_batch_norm_updates_its_buffers_in_every_step():
    base = normed().double()
    other = copy.deepcopy(base)
    wrapper, plain = wrap(base), wrap(other)
    batches = [batch() for _ in range(3)]
    accumulate(wrapper, batches)
    plainly(plain, batches)
    assert_equal_grads(base, other)
    for one, two in zip(base.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-12, rtol=1e-12)
    assert base[1].num_batches_tracked == 3


def test_zero_grad_of_the_wrapper_drops_what_is_kept(pair):
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    with wrapper.accumulate():
        loss_of(wrapper, batch()).backward()
    wrapper.zero_grad()
    assert is_empty(wrapper)
    accumulate(wrapper, [x] * 2)
    plainly(bare, [x] * 2)
    assert_equal_grads(base, bare)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copy_holds_nothing_and_the_original_keeps_it(how, pair):
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    with wrapper.accumulate():
        loss_of(wrapper, x).backward()
        twin = copy.deepcopy(wrapper) if how == "deepcopy" else pickle.loads(pickle.dumps(wrapper))
    assert is_empty(twin)
    accumulate(twin, [x] * 2)
    plainly(bare, [x] * 2)
    assert_equal_grads(twin.module, bare)
    loss_of(wrapper, x).backward()
    assert_equal_grads(base, bare)


def test_other_lanes_in_the_last_step(pair):
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    with wrapper.accumulate():
        loss_of(wrapper, x).backward()
    wrapper.device_ids = wrapper.device_ids[:2]
    with wrapper.accumulate():
        loss_of(wrapper, x).backward()
    wrapper.device_ids = wrapper.device_ids[:1]
    loss_of(wrapper, x).backward()
    wrapper.device_ids = ["cpu"] * 3
    loss_of(wrapper, x).backward()
    plainly(bare, [x] * 4)
    assert_equal_grads(base, bare)


def test_weights_are_sent_once(sent, pair):
    base, _ = pair
    wrapper = wrap(base)
    optimizer = torch.optim.SGD(base.parameters(), lr=0.01)
    loss_of(wrapper, batch()).backward()
    for _ in range(2):
        sent()
        with wrapper.accumulate():
            loss_of(wrapper, batch()).backward()
        assert sent() == LANES - 1
        with wrapper.accumulate():
            loss_of(wrapper, batch()).backward()
        assert sent() == 0
        loss_of(wrapper, batch()).backward()
        assert sent() == 0
        optimizer.step()
    loss_of(wrapper, batch()).backward()
    assert sent() == LANES - 1, "without accumulation every forward sends"


CHANGES = {
    "in place": lambda wrapper: wrapper.module[0].weight.mul_(2),
    "fused optimizer": lambda wrapper: fused_step(wrapper.module),
    "load": lambda wrapper: wrapper.module.load_state_dict({k: 2 * v for k, v in wrapper.module.state_dict().items()}),
    "reported": lambda wrapper: (wrapper.module[0].weight.data.mul_(2), wrapper.mark_dirty()),
}


def fused_step(base):
    for parameter in base.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(base.parameters(), lr=0.5, fused=True).step()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("is_inside", [True, False])
def test_weights_that_change_inside_are_sent_again(change, is_inside, pair):
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    with wrapper.accumulate():
        wrapper(x)
    with torch.no_grad():
        change(wrapper)
    bare.load_state_dict(base.state_dict())
    if is_inside:
        with wrapper.accumulate():
            out = wrapper(x)
    else:
        out = wrapper(x)
    torch.testing.assert_close(out, bare(x), atol=1e-12, rtol=1e-12)


def test_a_forward_without_grad_mode_between_the_steps(pair):
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    with wrapper.accumulate():
        with torch.no_grad():
            torch.testing.assert_close(wrapper(x), bare(x))
        loss_of(wrapper, x).backward()
    with torch.no_grad():
        torch.testing.assert_close(wrapper(x), bare(x))
    loss_of(wrapper, x).backward()
    plainly(bare, [x] * 2)
    assert_equal_grads(base, bare)


def test_threads_inside_one_context(pair):
    base, bare = pair
    wrapper = wrap(base)
    batches = [batch() for _ in range(8)]
    with wrapper.accumulate():
        threads = [threading.Thread(target=lambda x=x: loss_of(wrapper, x).backward()) for x in batches[:-1]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert base[0].weight.grad is None
    loss_of(wrapper, batches[-1]).backward()
    plainly(bare, batches)
    assert_equal_grads(base, bare)


def test_on_one_device_every_step_is_added(pair, monkeypatch):
    monkeypatch.undo()
    base, bare = pair
    wrapper = wrap(base)
    x = batch()
    with wrapper.accumulate():
        loss_of(wrapper, x).backward()
    plainly(bare, [x])
    assert_equal_grads(base, bare)
    accumulate(wrapper, [x] * 2)
    plainly(bare, [x] * 2)
    assert_equal_grads(base, bare)


def test_without_devices_every_step_is_added(pair):
    base, bare = pair
    wrapper = wrap(base)
    wrapper.device_ids = []
    x = batch()
    accumulate(wrapper, [x] * 3)
    plainly(bare, [x] * 3)
    assert_equal_grads(base, bare)
