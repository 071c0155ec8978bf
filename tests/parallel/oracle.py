"""The expected result of a data-parallel step: the plain module on each chunk in turn."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.parallel.scatter_gather import chunk_sizes


class Chunked:
    """`base` runs the first chunk, fresh copies of it the others. Only the first's writes stay.

    The gradients are summed over the chunks. `shares` are those of a `Policy`.
    """

    def __init__(self, base: nn.Module, lanes: int, dim: int = 0, shares: Any = None) -> None:
        self.base, self.lanes, self.dim, self.shares = base, lanes, dim, shares
        self.replicas: list[nn.Module] = []

    def __call__(self, *inputs: Tensor) -> Any:
        columns = list(zip(*map(self.chunks, inputs), strict=True))
        self.replicas = [self.base, *[copy.deepcopy(self.base) for _ in columns[1:]]]
        for replica in self.replicas[1:]:
            replica.zero_grad()
        outputs = [replica(*column) for replica, column in zip(self.replicas, columns, strict=True)]
        return torch.cat(outputs, self.dim)

    def chunks(self, tensor: Tensor) -> Sequence[Tensor]:
        if self.shares is None:
            return tensor.chunk(self.lanes, self.dim)
        return tensor.split(chunk_sizes(tensor.size(self.dim), self.lanes, self.shares), self.dim)

    def grads(self) -> dict[str, Tensor]:
        named = [dict(replica.named_parameters()) for replica in self.replicas]
        return {name: sum(params[name].grad for params in named if params[name].grad is not None) for name in named[0]}


def assert_same_step(
    make: Callable[[], nn.Module],
    wrap: Callable[[nn.Module], Callable[..., Tensor]],
    *inputs: Tensor,
    lanes: int = 4,
    atol: float = 1e-6,
) -> nn.Module:
    """Assert that the wrapped module's step equals the chunked one's; return the wrapped base."""
    base = make()
    expected, wrapped = Chunked(copy.deepcopy(base), lanes), wrap(base)
    want, got = expected(*inputs), wrapped(*inputs)
    torch.testing.assert_close(got, want, atol=atol, rtol=1e-5)
    want.square().sum().backward()
    got.square().sum().backward()
    assert_grads(base, expected.grads(), atol)
    for (name, buffer), other in zip(base.named_buffers(), expected.base.buffers(), strict=True):
        torch.testing.assert_close(buffer, other, msg=name)
    return base


def assert_grads(base: nn.Module, grads: dict[str, Tensor], atol: float = 1e-6) -> None:
    for name, parameter in base.named_parameters():
        assert parameter.grad is not None, name
        torch.testing.assert_close(parameter.grad, grads[name], atol=atol, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
