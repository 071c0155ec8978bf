"""Copies between devices that cannot reach each other's memory."""

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel
from tests.cuda_stand_in import control
from tests.parallel.models import normed
from tests.parallel.oracle import assert_same_step

COUNT = torch.cuda.device_count()
if COUNT < 2:
    pytest.skip(f"peers need 2 devices, and there is {COUNT}", allow_module_level=True)
control.allow_peers(False)  # torch asks once, and keeps the answer: so this file has a process of its own


def test_torch_sees_no_peers():
    assert not torch.cuda.can_device_access_peer(0, 1)


def test_tensors_of_any_layout_and_type_arrive():
    matrix = torch.arange(12.0).view(3, 4).to("cuda:0")
    for moved in (matrix.t().to("cuda:1"), matrix[:, ::2].to("cuda:1", torch.float64), matrix.to("cuda:1")):
        assert moved.device.index == 1
    torch.testing.assert_close(matrix.t().to("cuda:1").cpu(), matrix.cpu().t())


@pytest.mark.parametrize("wrap", [nn.DataParallel, DataParallel], ids=["stock", "tuned"])
def test_a_step_equals_the_plain_modules(wrap):
    x = torch.randn(16, 5, dtype=torch.float64, device="cuda:0")
    assert_same_step(
        lambda: normed().double().to("cuda:0"), lambda base: wrap(base, list(range(COUNT))), x, lanes=COUNT
    )
