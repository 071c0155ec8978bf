"""RNNs of every kind train as on the CPU."""

import pytest
import torch
from torch import nn

CELLS = {
    "LSTM": lambda **more: nn.LSTM(3, 5, 2, bidirectional=True, **more),
    "LSTM with projections": lambda **more: nn.LSTM(3, 5, proj_size=2, **more),
    "GRU": lambda **more: nn.GRU(3, 5, 2, bidirectional=True, **more),
    "an LSTM cell": lambda **more: nn.LSTMCell(3, 5, **more),
    "a GRU cell": lambda **more: nn.GRUCell(3, 5, **more),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", CELLS)
def test_outputs_and_gradients_are_those_of_the_cpu(name, bias):
    module = CELLS[name](bias=bias)
    x = torch.randn((4, 3) if "cell" in name else (4, 2, 3))
    results = []
    for device in ("cpu", "sim:0"):
        module.to(device).zero_grad()
        inputs = x.detach().to(device).requires_grad_()
        outputs = torch.utils._pytree.tree_leaves(module(inputs))
        sum(output.square().sum() for output in outputs).backward()
        results.append([tensor.cpu() for tensor in (*outputs, inputs.grad, *(p.grad for p in module.parameters()))])
    torch.testing.assert_close(results[1], results[0])
