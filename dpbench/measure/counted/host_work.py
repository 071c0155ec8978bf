"""Operators on host tensors, and the bytes that they write: a copy of the batch makes no Python call."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dpbench.records.count_record import Phase


class HostWork(TorchDispatchMode):
    """Counts by phase, in this thread.

    A view writes nothing and does not count; an operator that writes into its argument does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators: dict[Phase, int] = {}
        self.written_bytes: dict[Phase, int] = {}
        self._phase: Phase | None = None

    def enter(self, phase: Phase) -> None:
        self._phase = phase
        self.operators.setdefault(phase, 0)
        self.written_bytes.setdefault(phase, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
        if self._phase is not None and not func.is_view and all(tensor.device.type == "cpu" for tensor in tensors):
            self.operators[self._phase] += 1
            self.written_bytes[self._phase] += sum(map(_written_bytes, tree_leaves(result)))
        return result


def _written_bytes(leaf: Any) -> int:
    """A sparse tensor has no single size."""
    return leaf.nbytes if isinstance(leaf, Tensor) and leaf.layout is torch.strided else 0
