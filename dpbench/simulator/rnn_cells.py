"""The fused cells of ``nn.LSTM`` and ``nn.GRU``, which torch has for accelerators only, in operators of the CPU.

The workspaces have CUDA's sizes, B x 4H and B x 5H for a batch of B and H hidden units. They hold the gates before
their activations, because torch's differentiable backward takes these.
"""

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
Result = tuple[Tensor | None, ...]


def _lstm(inputs: Tensor, hidden: Tensor, cell: Tensor, *biases: Tensor | None) -> Result:
    """The hidden state, the cell state, the workspace."""
    gates = sum([bias for bias in biases if bias is not None], inputs + hidden)
    enter, forget, new, leave = gates.chunk(4, 1)
    state = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * state.tanh(), state, gates


def _lstm_backward(of_hidden: Any, of_state: Any, cell: Tensor, state: Tensor, gates: Tensor, has_bias: bool) -> Result:  # noqa: PLR0917
    backward, none = aten._thnn_differentiable_lstm_cell_backward.default, torch.zeros_like(gates)
    of_gates, _, of_cell, _, _ = backward(of_hidden, of_state, gates, none, None, None, cell, state)
    return of_gates, of_cell, of_gates.sum(0) if has_bias else None


def _gru(inputs: Tensor, hidden: Tensor, before: Tensor, *biases: Tensor | None) -> Result:
    """The hidden state, the workspace."""
    if biases and biases[0] is not None and biases[1] is not None:
        inputs, hidden = inputs + biases[0], hidden + biases[1]
    (reset_in, update_in, new_in), (reset, update, new) = inputs.chunk(3, 1), hidden.chunk(3, 1)
    reset, update = reset_in + reset, update_in + update
    candidate = (new_in + reset.sigmoid() * new).tanh()
    state = candidate + update.sigmoid() * (before - candidate)
    return state, torch.cat([reset, update, new_in, new, before], 1)


def _gru_backward(grad: Tensor, workspace: Tensor, has_bias: bool) -> Result:
    reset, update, new_in, new, before = workspace.chunk(5, 1)
    inputs = torch.cat([reset, update, new_in], 1)
    hidden = torch.cat([torch.zeros_like(reset), torch.zeros_like(update), new], 1)
    backward = aten._thnn_differentiable_gru_cell_backward.default
    of_inputs, of_hidden, of_before, _, _ = backward(grad, inputs, hidden, before, None, None)
    return of_inputs, of_hidden, of_before, *((of_inputs.sum(0), of_hidden.sum(0)) if has_bias else (None, None))


CELLS: dict[Any, Any] = {
    aten._thnn_fused_lstm_cell.default: _lstm,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_backward,
    aten._thnn_fused_gru_cell.default: _gru,
    aten._thnn_fused_gru_cell_backward.default: _gru_backward,
}
