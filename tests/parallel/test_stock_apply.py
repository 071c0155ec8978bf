"""`parallel_apply` as in stock: how replicas are called, and their errors."""

import threading
import time

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy, parallel_apply
from tests.parallel.models import Call

TWO = ["cpu"] * 2


def test_an_input_may_be_one_object_or_a_list_or_a_tuple():
    layers = [nn.Linear(2, 3), nn.Linear(2, 3)]
    x = torch.randn(4, 2)
    for inputs in ([x, x], [(x,), (x,)], [[x], [x]]):
        for layer, out in zip(layers, parallel_apply(layers, inputs, None, TWO), strict=True):
            torch.testing.assert_close(out, layer(x))


def test_kwargs_go_to_their_modules():
    modules = [Call(lambda self, x, k: x * k)] * 2
    outs = parallel_apply(modules, [torch.ones(1)] * 2, [{"k": 2}, {"k": 3}], TWO)
    assert [out.item() for out in outs] == [2, 3]


def test_without_devices_the_first_tensor_determines_the_device():
    modules = [Call(lambda self, x: x["deep"][0] + 1)] * 2
    assert [out.item() for out in parallel_apply(modules, [{"deep": [torch.ones(())]}] * 2)] == [2, 2]


def test_without_devices_and_tensors_it_runs_on_the_current_device():
    assert parallel_apply([Call(lambda self, *args: args)] * 2, [(), None]) == [(), (None,)]


@pytest.mark.parametrize(
    ("inputs", "kwargs", "devices", "message"),
    [
        ([1], None, None, "The number of modules 2 is not equal to the number of inputs 1"),
        ([1, 2], [{}], None, "The number of modules 2 is not equal to the number of kwargs_tup 1"),
        ([1, 2], None, ["cpu"], "The number of modules 2 is not equal to the number of devices 1"),
    ],
)
def test_unequal_numbers_are_errors(inputs, kwargs, devices, message):
    with pytest.raises(AssertionError, match=message):
        parallel_apply([nn.Identity()] * 2, inputs, kwargs, devices)


@pytest.mark.parametrize("devices", [None, []])
def test_no_modules_raise_an_error_that_names_them(devices):
    with pytest.raises(ValueError, match=r"modules is \[\]; at least one module is needed"):
        parallel_apply([], [], None, devices)


def raising(self, x):
    raise KeyError("what happened")


def test_a_single_replica_is_called_in_the_callers_thread_and_its_error_names_it(dispatch):
    seen = []
    wrapper = DataParallel(Call(lambda self, x: seen.append(threading.get_ident())), TWO)
    wrapper(torch.ones(1))
    assert seen == [threading.get_ident()]
    with pytest.raises(KeyError, match="replica 0"):
        DataParallel(Call(raising), TWO)(torch.ones(1))


def test_all_replicas_end_before_an_error_is_raised():
    done = threading.Event()

    def forward(self, x):
        if x[0] == 0:
            raise KeyError
        done.wait(0.2)
        done.set()
        return x

    with pytest.raises(KeyError):
        DataParallel(Call(forward), TWO, policy=Policy(dispatch="threads"))(torch.arange(2.0))
    assert done.is_set()


def test_an_interrupt_of_the_callers_own_replica_waits_for_the_others_too():
    ended = []

    def forward(self, x):
        if x[0] == 0:
            raise KeyboardInterrupt
        time.sleep(0.05)
        ended.append(int(x[0]))

    with pytest.raises(KeyboardInterrupt):
        DataParallel(Call(forward), TWO, policy=Policy(dispatch="threads"))(torch.arange(2.0))
    assert ended == [1]


def test_grad_mode_reaches_replicas(dispatch):
    seen = []
    wrapper = DataParallel(
        Call(lambda self, x: seen.append(torch.is_grad_enabled())), TWO, policy=Policy(dispatch=dispatch)
    )
    wrapper(torch.ones(2))
    with torch.no_grad():
        wrapper(torch.ones(2))
    assert seen == [True, True, False, False]


def test_sequence_runs_lanes_in_order_in_one_thread():
    seen = []
    wrapper = DataParallel(
        Call(lambda self, x: seen.append((int(x[0]), threading.get_ident()))),
        ["cpu"] * 4,
        policy=Policy(dispatch="sequence"),
    )
    wrapper(torch.arange(4.0))
    assert seen == [(i, threading.get_ident()) for i in range(4)]


def test_threads_run_lanes_at_the_same_time():
    everyone = threading.Barrier(4, timeout=10)
    wrapper = DataParallel(Call(lambda self, x: everyone.wait()), ["cpu"] * 4, policy=Policy(dispatch="threads"))
    assert sorted(wrapper(torch.arange(4.0))) == [0, 1, 2, 3]


def test_a_single_call_is_not_measured_but_runs_on_threads():
    met = threading.Barrier(2, timeout=10)  # two threads have to meet here
    parallel_apply([Call(lambda self, x: met.wait())] * 2, [torch.ones(1)] * 2, None, TWO)
