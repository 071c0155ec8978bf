"""Wrappers that older versions pickled and saved load with the present code."""

import pickle
import zlib
from base64 import b64decode
from pathlib import Path

import pytest
import torch

from dpbench.parallel import DataParallel
from dpbench.parallel.policy import Dispatch, Policy, Route

DATA = Path(__file__).parent / "data"
"""Each file holds a wrapper of ``nn.Linear(3, 2)`` after a forward, with the policy below; of commit 8ca9ec8."""


def unpickled():
    return pickle.loads((DATA / "wrapper_8ca9ec8.pickle").read_bytes())


def saved():
    return torch.load(DATA / "wrapper_8ca9ec8.pt", weights_only=False)


@pytest.mark.parametrize("load", [unpickled, saved])
def test_an_old_wrapper_loads(load):
    wrapper = load()
    assert type(wrapper) is DataParallel
    assert wrapper.policy == Policy(dispatch="threads", bucket_bytes=4096, skip_unchanged=True)
    assert wrapper.policy.dispatch is Dispatch.THREADS
    assert wrapper.device_ids == [torch.device("cpu")] * 2


@pytest.mark.parametrize("load", [unpickled, saved])
def test_an_old_wrapper_computes_and_trains(load):
    wrapper = load()
    x = torch.arange(12.0).view(4, 3)
    torch.testing.assert_close(wrapper(x), wrapper.module(x))
    want = torch.tensor([[-0.0043, 0.3097, -0.4752], [-0.4249, -0.2224, 0.1548]])
    torch.testing.assert_close(wrapper.module.weight.detach(), want, atol=1e-4, rtol=0)
    wrapper(x).sum().backward()
    torch.testing.assert_close(wrapper.module.weight.grad, x.sum(0).expand(2, 3))


TREE_AND_AUTO = (
    "eNp9VE9vG0UUX6/XruUkbtJCC2lVVRVC5mJBk1D1wqGKemAhhHCxVEWj2d2xZ5rNzO78SeRKkcKB4lYj9dDh1gNHLnwCbnwbPgJSD7zdsZO4"
    "ifDBb957v/fm/fntnEa/vW8F9c/ezoqE8JQOCixxnpN8cCgykxNnl7exxrszq3vrvvjZnbi+7WiJGWd87KZ2CVVRh0QTqcBpOygxo9FMuYO4"
    "4KgAjSlNuJ77kCLavXH2JkpwenCMZYYKSRAV4kA5u5QKuC/VTPBK+0FmRJJsm6W6KmHP2evnYT6EXq/MtxBTaGTyfNHtdmwPjYS8hF9ftKJj"
    "pimq4sZzxN0PEDg/xhOF0moe2Qxz4wxz3oL33LvsueKONaQ01gRl0N9C+McXHR/mXke5wNn/Ie5cRgi1eEMH+UXXu2rPl35bCwlk4HxGAzXI"
    "GSdYAuQ7f5gTgbamtF0Ron1M2JhqIIyPRUazXFWzkSQxLM/OSQLB9MsLDqCFEhIdPQRH3674eAUCj6GWVd/ESIpDlEw0VPrWPWk2guA0fN3N"
    "3797+u/953/sfjo4Db//pwn/J2XQH64CqQsptAAeoaOKfIKXDQAMV8CTM61zggjPGOZlOB12wagnBUGKvSCqbJ6UUX9YfRuKCqnLVhwOm6Ax"
    "rst2HA2jKofg4/JaHBkDd/aH1yqwL7kM0rqF7lMoXP/kjd2yMewB5vHG462tzY2vNja3Nh89LH3etDBlMw53dBn9CNn2y+AqbAMPQv+5Bg8m"
    "f/717uu/v3G/uD0XB3EjDl+6OIwbL92req8a7NP69CucbJQwrNyOoZ0TR7tvHF2ufXTNi5s79CN/uuXFJ16se3HXi3te3PfigRefefE5sGeJ"
    "cTQiWBsJO4pDuyyMvmBomETZbkaOWEoQy5Tbh2W36kkBrbwdVmubMI26L/qM2HYhcpZO3BUP1NzT3vWHs6epl+KUEmBXAXZoe2o7qcBAYsg/"
    "tcuJSQ+InlHp2yD4PbA3Rkyq6mVa9KwGdk0AeXJcoEQCCSGbhhS9uRGeJFMnPbOkomCkurKnDliBDFSM+Rgeild2iVbfHnyLXu1kTBVYQ/N0"
    "33a25woMoKNIaaBXUk/BtiTMkVSo1l59AkikJZm524riar42wkYLZxLbzNghkMKuALqAFcxGS59BUTKdqUgkz8FkksF/42g92w=="
)
"""A wrapper of ``nn.Linear(2, 1)`` on two CPU lanes, compressed; of commit ec6af0e.

Its policy has route "tree", shares "auto" and dispatch "sequence".
"""


@pytest.mark.parametrize("route", ["tree", "host"])
def test_choices_that_left_are_replaced_with_a_warning(route):
    data = zlib.decompress(b64decode(TREE_AND_AUTO)).replace(b"tree", route.encode())
    with pytest.warns(UserWarning, match="is no longer a choice") as caught:
        wrapper = pickle.loads(data)
    assert [str(each.message) for each in caught] == [
        f"the loaded policy has route '{route}', which is no longer a choice; 'chain' replaces it",
        "the loaded policy has shares 'auto', which is no longer a choice; None, for equal chunks, replaces it",
    ]
    assert wrapper.policy == Policy(route="chain", dispatch="sequence")
    assert wrapper.policy.route is Route.CHAIN
    assert wrapper.shares is None
    x = torch.randn(4, 2)
    torch.testing.assert_close(wrapper(x), wrapper.module(x))
    assert pickle.loads(pickle.dumps(wrapper)).policy == wrapper.policy
