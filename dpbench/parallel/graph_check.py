"""`Policy.check_graphs`: compare graphs with eager steps::

    snapshot ──> graphs: outputs, gradients, buffers ──> restored ──> eager: the same ──> restored ──> graphs again

The gradients are those of fixed gradients of the outputs: of all, of the first alone, of the last, because a loss may
use some.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from dpbench.parallel.module_tree import ModuleTree

CHECKS = 3


class Snapshot:
    """What a forward changes: the base's buffers, and the states of torch's generators, before check `number`."""

    def __init__(self, tree: ModuleTree, devices: Sequence[torch.device], number: int) -> None:
        self._used = (slice(None), slice(1), slice(-1, None))[number]
        self._buffers = [tree.tensors[i] for i in sorted(tree.buffer_indices)]
        self._parameters = [
            tensor for i, tensor in enumerate(tree.tensors) if i not in tree.buffer_indices and tensor.requires_grad
        ]
        self._values = [buffer.clone() for buffer in self._buffers]
        self._of_host = torch.get_rng_state()
        self._of_devices = {device: torch.cuda.get_rng_state(device) for device in dict.fromkeys(devices)}

    def restore(self) -> None:
        for buffer, value in zip(self._buffers, self._values, strict=True):
            buffer.data.copy_(value)  # no version counter: a graph of an earlier forward may have saved the buffer
        torch.set_rng_state(self._of_host)
        for device, state in self._of_devices.items():
            torch.cuda.set_rng_state(state, device)

    def results(self, output: Any) -> list[Tensor]:
        """The output's tensors, the buffers after it and the parameters' gradients; then restore."""
        tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
        outputs = [tensor for tensor in tensors if tensor.requires_grad][self._used]
        buffers = [buffer.clone() for buffer in self._buffers]
        grads: Sequence[Tensor | None] = ()
        if outputs:
            output_grads = [
                torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype, device=t.device).view(t.shape) for t in outputs
            ]
            grads = torch.autograd.grad(outputs, self._parameters, output_grads, allow_unused=True)
        self.restore()
        present = [torch.zeros(0) if grad is None else grad for grad in grads]
        return [tensor.detach().clone() for tensor in (*tensors, *buffers, *present)]


def difference(outputs: Any, eagerly: Callable[[], Any], snapshot: Snapshot) -> str | None:
    """How an output and its gradients differ from those of an eager forward, by torch's own tolerances; or None."""
    try:
        torch.testing.assert_close(
            snapshot.results(outputs), snapshot.results(eagerly()), equal_nan=True, check_stride=False
        )
    except AssertionError as error:
        return "; ".join(line for line in str(error).splitlines() if line)
    return None
