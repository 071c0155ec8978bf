"""The fused cells of ``nn.LSTM`` and ``nn.GRU``, which torch has for accelerators only, in operators of the CPU.

They return what the CUDA kernels return (aten/src/ATen/native/cuda/RNN.cu), their workspaces included. In the shapes
below B is the batch and H the number of hidden units.
"""

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
Grad = Tensor | None


def _lstm(inputs: Tensor, hidden: Tensor, cell: Tensor, *biases: Grad) -> tuple[Tensor, Tensor, Tensor]:
    """The hidden state and the cell state, B x H each, and the workspace, B x 4H."""
    gates = sum([bias for bias in biases if bias is not None], inputs + hidden)
    enter, forget, new, leave = gates.chunk(4, 1)
    enter, forget, new, leave = enter.sigmoid(), forget.sigmoid(), new.tanh(), leave.sigmoid()
    state = forget * cell + enter * new
    return leave * state.tanh(), state, torch.cat([enter, forget, new, leave], 1)


def _lstm_backward(  # noqa: PLR0917 - the operator's signature
    of_hidden: Grad, of_state: Grad, cell: Tensor, state: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Grad]:
    """Gradients of the gates, of the cell state before, and of a bias."""
    enter, forget, new, leave = workspace.chunk(4, 1)
    of_hidden = torch.zeros_like(state) if of_hidden is None else of_hidden
    of_state = torch.zeros_like(state) if of_state is None else of_state
    bent = state.tanh()
    of_state = of_state + of_hidden * leave * (1 - bent * bent)
    gates = torch.cat(
        [
            of_state * new * enter * (1 - enter),
            of_state * cell * forget * (1 - forget),
            of_state * enter * (1 - new * new),
            of_hidden * bent * leave * (1 - leave),
        ],
        1,
    )
    return gates, of_state * forget, gates.sum(0) if has_bias else None


def _gru(inputs: Tensor, hidden: Tensor, before: Tensor, *biases: Grad) -> tuple[Tensor, Tensor]:
    """The hidden state, B x H, and the workspace, B x 5H."""
    if biases and biases[0] is not None and biases[1] is not None:
        inputs, hidden = inputs + biases[0], hidden + biases[1]
    (reset_in, update_in, new_in), (reset, update, new) = inputs.chunk(3, 1), hidden.chunk(3, 1)
    reset, update = (reset_in + reset).sigmoid(), (update_in + update).sigmoid()
    candidate = (new_in + reset * new).tanh()
    return candidate + update * (before - candidate), torch.cat([reset, update, candidate, before, new], 1)


def _gru_backward(grad: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Grad, ...]:
    """Gradients of the gates from the input and from the hidden state, of that state, and of both biases."""
    reset, update, candidate, before, new = workspace.chunk(5, 1)
    of_candidate = grad * (1 - update) * (1 - candidate * candidate)
    of_update = grad * (before - candidate) * (1 - update) * update
    of_reset = of_candidate * new * (1 - reset) * reset
    inputs = torch.cat([of_reset, of_update, of_candidate], 1)
    hidden = torch.cat([of_reset, of_update, of_candidate * reset], 1)
    return inputs, hidden, grad * update, *([inputs.sum(0), hidden.sum(0)] if has_bias else [None, None])


CELLS: dict[Any, Any] = {
    aten._thnn_fused_lstm_cell.default: _lstm,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_backward,
    aten._thnn_fused_gru_cell.default: _gru,
    aten._thnn_fused_gru_cell_backward.default: _gru_backward,
}
