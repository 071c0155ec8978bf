"""A copied, pickled or saved wrapper gives the same results and shares nothing."""

import copy
import io
import pickle

import torch

from dpbench.parallel import DataParallel, devices
from tests.parallel.models import mlp
from tests.parallel.on_lanes import wrap


def test_a_copy_shares_nothing_and_a_pickle_is_one(dispatch):
    wrapper = wrap(mlp(), dispatch=dispatch)
    x = torch.randn(8, 5)
    want = wrapper(x)
    for twin in (copy.deepcopy(wrapper), pickle.loads(pickle.dumps(wrapper))):
        torch.testing.assert_close(twin(x), want)
        assert twin.policy == wrapper.policy
        with torch.no_grad():
            twin.module[0].weight.zero_()
        torch.testing.assert_close(wrapper(x), want)


def test_a_wrapper_can_be_saved_and_loaded():
    wrapper, saved = wrap(mlp()), io.BytesIO()
    torch.save(wrapper, saved)
    saved.seek(0)
    x = torch.randn(8, 5)
    torch.testing.assert_close(torch.load(saved, weights_only=False)(x), wrapper(x))


def test_a_wrapper_that_passes_through_can_be_copied_too(monkeypatch):
    monkeypatch.setattr(devices, "_get_available_device_type", lambda: None)
    wrapper, x = DataParallel(mlp()), torch.randn(8, 5)
    assert not wrapper.device_ids
    torch.testing.assert_close(copy.deepcopy(wrapper)(x), wrapper(x))
