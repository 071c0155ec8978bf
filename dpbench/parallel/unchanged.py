"""What provably did not change since it was sent, for ``Policy(skip_unchanged=True)``.

A version counter alone proves nothing: fused optimizers do not raise it. So a tensor counts as unchanged if it
has the same memory and version, no optimizer has stepped on it since, and nobody called `mark_dirty`. Writes
through ``.data``, NumPy or the storage escape all of these, as do collectives, other processes, and fused kernels
called without an optimizer; who does that calls `mark_dirty`, or does not opt in.
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
    """Counts the optimizer steps on each tensor, process-wide, for as long as it lives.

    At both ends: one that fails may have written before, and one with a closure writes after a forward.
    """

    def __init__(self) -> None:
        self._steps: Counter[int] = Counter()
        self._dirty_marks = 0
        watch = weakref.ref(self)

        def note_step(optimizer: Optimizer, *_: Any) -> None:
            if (alive := watch()) is not None:
                alive._note_step(optimizer)

        for register in (register_optimizer_step_pre_hook, register_optimizer_step_post_hook):
            weakref.finalize(self, register(note_step).remove)

    def _note_step(self, optimizer: Optimizer) -> None:
        # A step may have dropped the gradients that it used.
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._steps.update(id(p) for p in parameters if p.requires_grad or p.grad is not None)

    def mark_dirty(self) -> None:
        self._dirty_marks += 1

    def signature(self, tensors: Sequence[Tensor]) -> Signature:
        """Equal to an earlier one only if the tensors, kept alive in between with their memory, provably have their
        values of then.
        """
        return (self._dirty_marks, *[(t.data_ptr(), _version(t), self._steps[id(t)]) for t in tensors])


def _version(tensor: Tensor) -> Any:
    # An inference tensor counts no writes: never equal.
    return object() if tensor.is_inference() else tensor._version
