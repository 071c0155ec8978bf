"""A model with its loss inside, so that a replica returns the loss and its outputs stay on its lane.

For a language model the outputs are large: the gathered logits of GPT-2 are two thirds of what a step sends
(huggingface/transformers#9371, two TITAN RTX: 823 of 2,120 MB, and 302 MB of caches)::

    DataParallel(model)                    lane i: outputs  ── sent ──>  base: loss over the batch
    DataParallel(with_loss(model, loss))   lane i: outputs, loss  ── one number for each item ──>  base: mean
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

Loss = Callable[[Any, Tensor], Tensor]


class ModelWithLoss(nn.Module):
    """Calls `module` and `loss` on it. Its parameters are those of `module`, with the prefix ``module.``."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self.loss = loss

    def forward(self, *inputs: Any, **kwargs: Any) -> Tensor:
        """Return the loss of each item. The last positional argument is the target, with the batch as dimension 0."""
        if not inputs or not isinstance(inputs[-1], Tensor) or inputs[-1].dim() == 0:
            raise ValueError(
                "with_loss: the last positional argument must be the target, a tensor with a batch dimension"
            )
        *given, target = inputs
        value = self.loss(self.module(*given, **kwargs), target)
        count = len(target)
        if not isinstance(value, Tensor) or value.shape not in ((), (count,)) or not value.is_floating_point():
            raise ValueError(
                f"with_loss: loss(output, target) returned {_kind(value)}; a floating scalar, the mean over the items, "
                f"or a floating vector with an entry for each of the {count} items is allowed"
            )
        return value.expand(count)


def with_loss(module: nn.Module, loss: Loss) -> ModelWithLoss:
    """Return a module that takes the inputs and the target, and returns the loss of each item.

    `loss(output, target)` returns the mean over the items as a scalar, or a vector with the loss of each item. A
    scalar is repeated for each item of its chunk. So the mean of what the wrapper returns is weighted by the chunks'
    sizes, and equals the mean over the batch also if chunks are uneven::

        model = DataParallel(with_loss(net, nn.functional.cross_entropy))
        loss = model(images, labels).mean()
        loss.backward()

    What you give up: the outputs. To get them too, call ``net`` or another wrapper around it. A loss that is no mean
    over items, such as one that normalises by a count in the whole batch, has another value than without the wrapper.
    Calling it raises ValueError if the loss is neither a scalar nor such a vector.
    """
    return ModelWithLoss(module, loss)


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and {value.dtype}"
    return f"a {type(value).__name__}"
