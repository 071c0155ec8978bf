"""What a recording holds about the base: facts about it, and when its gradients are final."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch import Tensor, nn

from dpbench.results.recording import ModelFacts
from dpbench.simulator.simulation import log_gradient


def facts_of(base: nn.Module) -> ModelFacts:
    """Return the facts about the model that no event shows."""
    sizes = tuple(parameter.nbytes for parameter in base.parameters())
    buffers = [buffer.nbytes for buffer in base.buffers()]
    return ModelFacts(
        modules=sum(1 for _ in base.modules()),
        parameters=len(sizes),
        buffers=len(buffers),
        parameter_bytes=sum(sizes),
        buffer_bytes=sum(buffers),
        parameter_sizes=sizes,
    )


@contextmanager
def gradients_logged(base: nn.Module) -> Iterator[None]:
    """Log a `GradientReady` each time that autograd has accumulated a gradient of the base.

    A parameter whose gradient comes in parts has one event for each part; the last one counts.
    """

    def log(position: int, parameter: Tensor) -> None:
        log_gradient(position, parameter.nbytes, parameter.device.index)

    hooks = [
        parameter.register_post_accumulate_grad_hook(partial(log, position))
        for position, parameter in enumerate(base.parameters())
        if parameter.requires_grad
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
