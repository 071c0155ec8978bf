"""What the sums of gradients have in common, on one device and over links."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def is_dense(grad: Tensor | None) -> bool:
    """Whether there is a gradient, and it is strided."""
    return grad is not None and grad.layout is torch.strided


def sum_each(grads: Iterable[Tensor | None]) -> Tensor | None:
    """The sum of the gradients that are there, out of place, on the current stream; None without any."""
    total: Tensor | None = None
    for grad in grads:
        if grad is None or total is None:
            total = grad if total is None else total
        elif grad.layout is torch.strided:  # torch adds sparse to dense, not dense to sparse
            total = grad + total
        else:
            total = total + grad
    return total


def zeros_for_hooks(node: Any) -> Tensor | None:
    """Zeros on the current stream if the parameter has hooks, else None.

    Without zeros the engine would call the hooks with None.

    `node` is the node that writes the parameter's ``.grad``.
    """
    parameter = getattr(node, "variable", None)
    if parameter is None or not parameter._backward_hooks:
        return None
    return torch.zeros_like(parameter)
