"""Wrappers that older versions pickled and saved load with the present code."""

import pickle
from pathlib import Path

import pytest
import torch

from dpbench.parallel import DataParallel
from dpbench.parallel.policy import Dispatch, Policy, Route

DATA = Path(__file__).parent / "data"
"""Each file of commit 8ca9ec8 holds a wrapper of ``nn.Linear(3, 2)`` after a forward, with the policy below.

That of ec6af0e: ``nn.Linear(2, 1)`` on two CPU lanes, with route "tree", shares "auto" and dispatch "sequence".
"""


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


@pytest.mark.parametrize("route", ["tree", "host"])
def test_choices_that_left_are_replaced_with_a_warning(route):
    data = (DATA / "wrapper_ec6af0e.pickle").read_bytes().replace(b"tree", route.encode())
    with pytest.warns(UserWarning, match="is no longer a choice") as caught:
        wrapper = pickle.loads(data)
    assert [str(warning.message) for warning in caught] == [
        f"the loaded policy has route '{route}', which is no longer a choice; 'chain' replaces it",
        "the loaded policy has shares 'auto', which is no longer a choice; None, for equal chunks, replaces it",
    ]
    assert wrapper.policy == Policy(route="chain", dispatch="sequence")
    assert wrapper.policy.route is Route.CHAIN
    assert wrapper.shares is None
    x = torch.randn(4, 2)
    torch.testing.assert_close(wrapper(x), wrapper.module(x))
    assert pickle.loads(pickle.dumps(wrapper)).policy == wrapper.policy
