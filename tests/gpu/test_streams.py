"""Pauses forced on streams change no number. They show where a wait is missing."""

import copy
import os
import sys

import pytest
import torch
from torch import nn
from torch.optim import SGD

from dpbench.parallel.tables import Arrival
from tests.gpu.device import (
    DEVICE,
    LONG,
    Moment,
    is_stand_in,
    on_host,
    pause,
    skip_without_gpu,
    synchronize,
    wrap,
)
from tests.parallel.models import Call
from tests.parallel.oracle import assert_grads

pytestmark = pytest.mark.gpu
skip_without_gpu()

WIDTH = 16
MANY_BUCKETS = {"bucket_bytes": 4096, "first_bucket_bytes": 512}
ONE_TENSOR_EACH = {"bucket_bytes": 1, "first_bucket_bytes": 1}
IS_OVERLAPPED = [True, False]  # without overlap the stream must wait: this shows that the test can fail


def deep():
    layers = [layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    return nn.Sequential(*layers).double().to(DEVICE)


def late(function):
    def run(*args, **kwargs):
        pause()
        return function(*args, **kwargs)

    return run


def pause_here(*_):
    pause()  # and return None: a hook's result would replace the value


def pause_in_backward(module, inputs, output):
    output.register_hook(pause_here)


def delay(target):
    def apply(monkeypatch, base):
        owner, _, name = target.rpartition(".")
        monkeypatch.setattr(target, late(getattr(__import__(owner, fromlist=[name]), name)))

    return apply


PAUSES = {
    "before a batch leaves the host": delay("dpbench.parallel.transfer.copy_to"),
    "before a bucket is packed": delay("torch._foreach_copy_"),
    "before a bucket goes to a lane": delay("dpbench.parallel.buckets.copy_into"),
    "before gradients are summed": delay("dpbench.parallel.gradient_nodes.sum_along_route"),
    "in forward": lambda monkeypatch, base: base[4].register_forward_pre_hook(pause_here),
    "in backward": lambda monkeypatch, base: base[4].register_forward_hook(pause_in_backward),
    "before the optimizer": lambda monkeypatch, base: monkeypatch.setattr(SGD, "step", late(SGD.step)),
}


def train(module, base, batches):
    """Train.

    The optimizer writes weights right after they are read, and freed memory is filled with NaN.
    """
    optimizer = SGD(base.parameters(), lr=0.05)
    for batch in batches:
        optimizer.zero_grad()
        module(batch).square().sum().backward()
        optimizer.step()
        [torch.full_like(parameter, torch.nan) for parameter in base.parameters()]
    return [parameter.detach() for parameter in base.parameters()]


@pytest.mark.parametrize("is_from_host", [False, True], ids=["batch there", "batch on the host"])
@pytest.mark.parametrize("place", PAUSES)
def test_a_pause_changes_no_number(place, is_from_host, lanes, dispatch, monkeypatch):
    base, batches = deep(), torch.randn(4, 8, WIDTH, dtype=torch.float64).to(DEVICE)
    expected = copy.deepcopy(base)
    want = train(expected, expected, batches)
    wrapper = wrap(base, lanes, dispatch=dispatch, **MANY_BUCKETS)
    PAUSES[place](monkeypatch, base)
    got = train(wrapper, base, [on_host(batch) for batch in batches] if is_from_host else batches)
    torch.testing.assert_close(got, want)


@pytest.mark.usefixtures("_remote")
@pytest.mark.parametrize("policy", [{"skip_unchanged": True}, {"cache_replicas": False}, {"coalesce": False}], ids=str)
def test_a_pause_changes_no_number_under_other_policies(policy, monkeypatch):
    base, batches = deep(), torch.randn(4, 8, WIDTH, dtype=torch.float64).to(DEVICE)
    expected = copy.deepcopy(base)
    want = train(expected, expected, batches)
    wrapper = wrap(base, 4, **MANY_BUCKETS, **policy)
    PAUSES["before a bucket goes to a lane"](monkeypatch, base)
    torch.testing.assert_close(train(wrapper, base, batches), want)


def test_the_sanitizer_is_imported_only_where_it_is_asked_for():
    """Its import alone makes torch walk up the stack at each allocation."""
    assert ("torch.cuda._sanitizer" in sys.modules) is ("TORCH_CUDA_SANITIZER" in os.environ)


@pytest.mark.races
@pytest.mark.usefixtures("_remote")
def test_a_pause_shows_a_missing_wait(dispatch, monkeypatch):
    """This shows that the tests above can fail. torch's sanitizer raises by itself, and so does the CUDA stand-in."""
    # It is looked up and not imported, because its import makes every allocation and event call Python.
    sanitizer = sys.modules.get("torch.cuda._sanitizer")
    error = AssertionError if sanitizer is None else sanitizer.CUDASanitizerErrors
    error = RuntimeError if is_stand_in() else error
    base, batches = deep(), torch.randn(4, 8, WIDTH, dtype=torch.float64).to(DEVICE)
    expected = copy.deepcopy(base)
    want = train(expected, expected, batches)
    wrapper = wrap(base, 2, dispatch=dispatch, **MANY_BUCKETS)
    PAUSES["before a bucket goes to a lane"](monkeypatch, base)
    monkeypatch.setattr(Arrival, "wait", lambda self: None)
    with pytest.raises(error):
        torch.testing.assert_close(train(wrapper, base, batches), want)


def two_layers():
    return Call(
        lambda self, x: self.last(self.first(x)), first=nn.Linear(WIDTH, WIDTH), last=nn.Linear(WIDTH, WIDTH)
    ).to(DEVICE)


def warm_up(base, x):
    """Load all kernels.

    A first launch may wait for running kernels (CUDA C++ Programming Guide, Lazy Loading).
    """
    wrap(base, 2, **ONE_TENSOR_EACH)(x).sum().backward()
    base.zero_grad()
    synchronize()


def assert_plain_gradients(base, x):
    expected = copy.deepcopy(base)
    expected.zero_grad()
    expected(x).sum().backward()
    assert_grads(base, {name: parameter.grad for name, parameter in expected.named_parameters()}, atol=1e-4)


@pytest.mark.usefixtures("_remote")
@pytest.mark.parametrize("is_overlapped", IS_OVERLAPPED)
def test_the_first_layer_runs_while_the_last_layers_weights_are_copied(is_overlapped, monkeypatch):
    from dpbench.parallel import buckets as flat

    copies, pauses, first_layers, copy_into = [], [], [], flat.copy_into

    def copy_late(*args):
        copies.append(args)
        if len(copies) == 3:  # first.weight, first.bias, last.weight
            pauses.append(pause(LONG))
        copy_into(*args)

    base, x = two_layers(), torch.randn(8, WIDTH, device=DEVICE)
    warm_up(base, x)
    handle = base.first.register_forward_hook(lambda *_: first_layers.append(Moment()))
    wrapper = wrap(base, 2, overlap_broadcast=is_overlapped, **ONE_TENSOR_EACH)
    monkeypatch.setattr(flat, "copy_into", copy_late)
    loss = wrapper(x).sum()
    first_layers[0].wait()
    assert pauses[0].has_come() is not is_overlapped
    loss.backward()
    handle.remove()
    assert_plain_gradients(base, x)


@pytest.mark.usefixtures("_remote")
@pytest.mark.parametrize("is_overlapped", IS_OVERLAPPED)
def test_the_last_layers_gradients_are_summed_while_the_first_ones_backward_runs(is_overlapped, monkeypatch):
    from dpbench.parallel import gradient_nodes

    hooks, pauses, sums, sum_flats = [], [], [], gradient_nodes.sum_along_route

    def forward(self, x):
        hidden = self.first(x)
        hidden.register_hook(before_first_layer)
        return self.last(hidden)

    def before_first_layer(grad):
        hooks.append(grad)
        if len(hooks) == 2:  # of both lanes, the last layer's backward is issued
            pauses.append(pause(LONG))

    def sum_and_mark(*args):
        total = sum_flats(*args)
        sums.append(Moment())
        return total

    base, x = two_layers(), torch.randn(8, WIDTH, device=DEVICE)
    warm_up(base, x)
    base.function = forward
    wrapper = wrap(base, 2, overlap_reduce=is_overlapped, **ONE_TENSOR_EACH)
    monkeypatch.setattr(gradient_nodes, "sum_along_route", sum_and_mark)
    wrapper(x).sum().backward()
    sums[0].wait()
    assert pauses[0].has_come() is not is_overlapped
    assert_plain_gradients(base, x)


@pytest.mark.parametrize("is_from_host", [False, True], ids=["batch there", "batch on the host"])
def test_a_step_is_issued_without_a_wait_for_the_device(is_from_host, lanes, dispatch):
    """Two steps warm up, also the memory for a device that lags behind.

    In the third, any wait outlasts the pause.
    """
    base, x = deep(), torch.randn(8, WIDTH, dtype=torch.float64).to(DEVICE)
    wrapper = wrap(base, lanes, dispatch=dispatch, **MANY_BUCKETS)
    batches = [on_host(x) if is_from_host else x]
    for attempt in range(3):
        synchronize()
        asleep = pause(LONG)
        with forbidden_waits(attempt == 2):
            train(wrapper, base, batches)
        was_asleep = not asleep.has_come()
    assert was_asleep


class forbidden_waits:
    """In the block, torch raises at every wait for a stream that it knows, like ``.item()``."""

    def __init__(self, is_on):
        self._mode = "error" if is_on else None

    def __enter__(self):
        if self._mode:
            torch.cuda.set_sync_debug_mode(self._mode)

    def __exit__(self, *_):
        if self._mode:
            torch.cuda.set_sync_debug_mode("default")
