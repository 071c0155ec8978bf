"""Constructor and attributes as in stock."""

import copy
import inspect
import pickle
import sys
import threading

import pytest
import torch
from torch import nn

import dpbench.parallel
from dpbench.parallel import (
    DataParallel,
    Policy,
    data_parallel,
    gather,
    parallel_apply,
    replicas,
    replicate,
    scatter,
    scatter_kwargs,
)
from tests.parallel.models import mlp
from tests.parallel.on_lanes import no_warnings

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "name", ["data_parallel", "replicate", "scatter", "scatter_kwargs", "gather", "parallel_apply"]
)
def test_public_functions_take_the_stock_arguments_and_a_policy(name):
    stock = getattr(torch.nn.parallel.scatter_gather, name, None) or getattr(torch.nn.parallel, name)
    ours = inspect.signature(getattr(dpbench.parallel, name)).parameters
    for position, parameter in enumerate(inspect.signature(stock).parameters.values()):
        assert list(ours)[position] == parameter.name
        assert ours[parameter.name].default == parameter.default
    assert list(ours)[len(inspect.signature(stock).parameters) :] == ["policy"]


def test_the_constructor_takes_the_stock_arguments_and_a_policy():
    stock = list(inspect.signature(torch.nn.DataParallel).parameters)
    assert list(inspect.signature(DataParallel).parameters) == [*stock, "policy"]


def test_it_is_a_stock_wrapper_by_type_so_that_libraries_find_the_module():
    """accelerate, transformers and many training scripts look for this type before they save."""
    wrapper = DataParallel(mlp(), ["cpu"] * 2)
    for one in (wrapper, copy.deepcopy(wrapper), pickle.loads(pickle.dumps(wrapper))):
        assert isinstance(one, nn.DataParallel)
        assert one.module is next(one.children())
        assert list(one.state_dict()) == [f"module.{name}" for name in mlp().state_dict()]


def test_its_use_is_logged_as_stocks_is(monkeypatch):
    base, logged = mlp(), []
    monkeypatch.setattr(torch._C, "_log_api_usage_once", logged.append)
    nn.DataParallel(base)
    of_stock = list(logged)
    DataParallel(base)
    assert logged == of_stock * 2
    assert "torch.nn.parallel.DataParallel" in of_stock


def test_no_code_of_stock_is_inherited():
    stock = vars(nn.DataParallel)
    assert [name for name in stock if callable(stock[name]) and name not in vars(DataParallel)] == []


@pytest.mark.parametrize("device_ids", [None, [0, 1]])
def test_without_an_accelerator_it_passes_through(device_ids):
    if torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    base = mlp()
    wrapper = DataParallel(base, device_ids)
    x = torch.randn(3, 5)
    torch.testing.assert_close(wrapper(x), base(x))
    assert wrapper.device_ids == []
    for name in ("dim", "output_device", "src_device_obj"):
        assert not hasattr(wrapper, name)


@pytest.mark.parametrize("device", ["cpu", CPU, torch.device("cpu", 0)])
def test_cpu_lanes_read_back_as_devices(device):
    wrapper = DataParallel(mlp(), [device] * 3)
    assert wrapper.device_ids == [CPU] * 3
    assert wrapper.output_device == CPU
    assert wrapper.src_device_obj == CPU
    assert wrapper.dim == 0


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.weight * torch.full((1,), float(len(x)))


def test_devices_may_be_assigned_later():
    wrapper = DataParallel(Counts(), ["cpu"] * 4)
    assert wrapper(torch.ones(4, 1)).tolist() == [1, 1, 1, 1]
    wrapper.device_ids = wrapper.device_ids[:2]
    assert wrapper(torch.ones(4, 1)).tolist() == [2, 2]
    wrapper.device_ids.extend([CPU] * 4)
    assert wrapper(torch.ones(6, 1)).tolist() == [1] * 6
    wrapper.device_ids.append(CPU)
    assert len(wrapper.replicate(wrapper.module, wrapper.device_ids)) == 7
    wrapper.device_ids.append(CPU)
    assert len(wrapper.scatter((torch.ones(8),), {}, wrapper.device_ids)[0]) == 8


def test_a_policy_may_be_assigned_later():
    threads = set()
    base = Counts()
    base.register_forward_hook(lambda *_: threads.add(threading.get_ident()))
    wrapper = DataParallel(base, ["cpu"] * 2, policy=Policy(dispatch="sequence"))
    wrapper(torch.ones(2, 1))
    assert threads == {threading.get_ident()}
    wrapper.policy = Policy(dispatch="threads")
    wrapper(torch.ones(2, 1))
    assert len(threads) == 2


@pytest.mark.parametrize(("output_device", "kept"), [("cpu", CPU), (-1, -1), (CPU, CPU)])
def test_output_device_may_be_the_cpu(output_device, kept):
    assert DataParallel(mlp(), ["cpu"] * 2, output_device).output_device == kept


def test_minus_one_for_the_cpu_is_warned_of_in_every_gather_and_not_at_construction():
    with no_warnings():
        wrapper = DataParallel(mlp(), ["cpu"] * 2, output_device=-1)
        named = DataParallel(mlp(), ["cpu"] * 2, output_device="cpu")
        named(torch.randn(4, 5))
    for _ in range(2):
        with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor is deprecated"):
            assert wrapper(torch.randn(4, 5)).device == CPU


def test_a_single_device_gets_the_module_at_construction_and_several_do_not():
    base = nn.Linear(2, 2, device="meta")
    wrapper = DataParallel(mlp(), ["cpu"])
    assert wrapper.module[0].weight.device == CPU
    with pytest.raises(NotImplementedError):  # a meta tensor cannot move, so the error shows the call
        DataParallel(base, ["cpu"])
    assert DataParallel(base, ["cpu"] * 2).module.weight.is_meta


def test_cuda_devices_are_checked_for_balance(monkeypatch):
    module, checked = sys.modules[DataParallel.__module__], []
    monkeypatch.setattr(module, "resolve_device_ids", lambda ids: [torch.device("cuda", i) for i in ids])
    monkeypatch.setattr(replicas, "find_links", lambda *_: None)
    monkeypatch.setattr(module, "_check_balance", checked.append)
    DataParallel(mlp(), [1, 0])
    assert checked == [[1, 0]]


BAD_DEVICES = {
    "empty": ((), r"device_ids is \(\); at least one device is needed"),
    "mixed": (["cpu", "meta:0"], "all lanes must be of one type"),
    "a name": ("cpu", "device_ids is 'cpu'; a list of indices, names and devices is allowed"),
    "an index": (0, "device_ids is 0; a list of indices, names and devices is allowed"),
    "a device": (CPU, r"device_ids is device\(type='cpu'\); a list of"),
    "no device": (["cpu", None], "Expected a torch.device with a specified index or an integer, but got:None"),
    "a fraction": ([0.5], "Expected a torch.device with a specified index or an integer, but got:0.5"),
    "no streams": (["mps"] * 2, r"device_ids is \['mps', 'mps'\]; torch has no streams for 'mps', so one lane is"),
    "no accelerator": (["meta"] * 2, "device meta cannot compute; 'cpu' and the accelerators of this machine"),
}


BAD_FIELDS = [
    *(("bucket_bytes", 0), ("bucket_bytes", 1.5), ("first_bucket_bytes", -1), ("first_bucket_bytes", True)),
    *(("coalesce", 1), ("dispatch", "processes")),
]
X = torch.ones(4, 5)
WITH_POLICY = {
    "DataParallel": lambda policy: DataParallel(mlp(), ["cpu"] * 2, policy=policy),
    "data_parallel": lambda policy: data_parallel(mlp(), X, ["cpu"] * 2, policy=policy),
    "parallel_apply": lambda policy: parallel_apply([mlp()], [X], policy=policy),
    "replicate": lambda policy: replicate(mlp(), [CPU], policy=policy),
    "scatter": lambda policy: scatter(X, [CPU], policy=policy),
    "scatter_kwargs": lambda policy: scatter_kwargs((X,), {}, [CPU], policy=policy),
    "gather": lambda policy: gather([X], CPU, policy=policy),
}
ERRORS = {
    **{
        f"device_ids: {name}": (lambda ids=ids: DataParallel(mlp(), ids), ValueError, message)
        for name, (ids, message) in BAD_DEVICES.items()
    },
    **{
        f"output_device {device}": (
            lambda device=device: DataParallel(mlp(), ["cpu"] * 2, device),
            ValueError,
            rf"{device}.*(machine|allowed)",
        )
        for device in ("cuda:99", "meta", "meta:0", 0.5)
    },
    **{
        f"Policy.{name} {value}": (
            lambda name=name, value=value: Policy(**{name: value}),
            ValueError,
            rf"Policy\.{name} is .*allowed",
        )
        for name, value in BAD_FIELDS
    },
    **{
        f"{name}, policy {policy}": (
            lambda call=call, policy=policy: call(policy),
            TypeError,
            r"policy is .*; a Policy is allowed",
        )
        for name, call in WITH_POLICY.items()
        for policy in (None, "threads", Policy)
    },
}


@pytest.mark.parametrize(("call", "error", "message"), ERRORS.values(), ids=ERRORS)
def test_a_wrong_argument_is_an_error_that_names_it_and_what_is_allowed(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_subclasses_may_override_each_step():
    calls = []

    class Watching(DataParallel):
        def scatter(self, inputs, kwargs, device_ids):
            calls.append(("scatter", len(device_ids)))
            return super().scatter(inputs, kwargs, device_ids)

        def replicate(self, module, device_ids):
            calls.append(("replicate", len(device_ids)))
            return super().replicate(module, device_ids)

        def parallel_apply(self, replicas, inputs, kwargs):
            calls.append(("parallel_apply", len(replicas)))
            return super().parallel_apply(replicas, inputs, kwargs)

        def gather(self, outputs, output_device):
            calls.append(("gather", output_device))
            return super().gather(outputs, output_device)

    Watching(mlp(), ["cpu"] * 4)(torch.randn(2, 5))
    assert calls == [("scatter", 4), ("replicate", 2), ("parallel_apply", 2), ("gather", CPU)]


def test_a_subclass_may_replace_the_chunks_and_keep_the_outputs_apart():
    class Unbalanced(DataParallel):
        def scatter(self, inputs, kwargs, device_ids):
            (x,) = inputs
            return ((x[:1],), (x[1:],)), ({}, {})

        def gather(self, outputs, output_device):
            return [len(output) for output in outputs]

    assert Unbalanced(mlp(), ["cpu"] * 2)(torch.randn(5, 5)) == [1, 4]


def test_the_policy_is_frozen():
    with pytest.raises(AttributeError):
        Policy().coalesce = False
