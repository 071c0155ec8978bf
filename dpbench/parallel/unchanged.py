"""Tensors that provably have not changed since they were sent (`Policy.skip_unchanged`).

A version counter alone proves nothing, since fused optimizers do not raise it. A tensor counts as unchanged if:

1. its memory and its version are the same,
2. no optimizer has stepped on it since,
3. the user has not called `mark_dirty` since.

Some writes escape all three: through ``.data``, NumPy or the storage, by collectives or other processes, and by fused
kernels called without an optimizer. A user who writes so must call `mark_dirty`, or not opt in.
"""

import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

Signature = tuple[Any, ...]


class ChangeWatch:
    """Counts the optimizer steps on each tensor in the process, as long as the watch lives.

    A step counts at its start and at its end. A step that fails may have written before it failed, and a step with a
    closure writes after the closure's forward.
    """

    def __init__(self) -> None:
        self._steps: Counter[int] = Counter()
        self._mark = object()
        watch = weakref.ref(self)

        def note_step(optimizer: Optimizer, *_: Any) -> None:
            if (alive := watch()) is not None:
                alive._note_step(optimizer)

        for register in (register_optimizer_step_pre_hook, register_optimizer_step_post_hook):
            weakref.finalize(self, register(note_step).remove)

    def _note_step(self, optimizer: Optimizer) -> None:
        # `requires_grad` too, because a step may have set the gradients that it used to None.
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._steps.update(id(p) for p in parameters if p.requires_grad or p.grad is not None)

    def mark_dirty(self) -> None:
        """Make every later signature differ from the present ones."""
        self._mark = object()

    def signature(self, tensors: Sequence[Tensor]) -> Signature:
        """A value that is equal to an earlier one only if the tensors provably have not changed.

        The caller must keep the tensors and their memory alive in between.
        """
        return (self._mark, *[(t.data_ptr(), _version(t), self._steps[id(t)]) for t in tensors])


def _version(tensor: Tensor) -> Any:
    # An inference tensor does not count writes. A new object never equals another, so the tensor is always sent.
    return object() if tensor.is_inference() else tensor._version
