"""``accumulate()`` with weights and buffers that change, and copies."""

import copy
import pickle

import pytest
import torch

from tests.parallel.accumulating import accumulate, assert_equal_grads, batch, is_empty, loss_of, plainly
from tests.parallel.models import normed
from tests.parallel.on_lanes import LANES, wrap
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
