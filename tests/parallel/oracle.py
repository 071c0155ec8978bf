"""The expected result of a data-parallel step: the plain module on each chunk in turn."""

import copy
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.parallel.scatter_gather import chunk_sizes


class Chunked:
    """`base` runs the first chunk, fresh copies of it the others. Only the first's writes stay.

    The gradients are summed over the chunks. `shares` are those of a `Policy`. `make` makes a module that gets the
    base's state, for bases that cannot be copied.
    """

    def __init__(
        self, base: nn.Module, lanes: int, dim: int = 0, shares: Any = None, make: Callable[[], nn.Module] | None = None
    ) -> None:
        self.base, self.lanes, self.dim, self.shares, self.make = base, lanes, dim, shares, make
        self.replicas: list[nn.Module] = []

    def __call__(self, *inputs: Tensor) -> Any:
        columns = list(zip(*map(self.chunks, inputs), strict=True))
        self.replicas = [self.base, *[self.copy() for _ in columns[1:]]]
        for replica in self.replicas[1:]:
            replica.zero_grad()
        outputs = [replica(*column) for replica, column in zip(self.replicas, columns, strict=True)]
        return torch.cat(outputs, self.dim)

    def copy(self) -> nn.Module:
        if self.make is None:
            return copy.deepcopy(self.base)
        replica = self.make()
        replica.load_state_dict(self.base.state_dict())
        return replica

    def chunks(self, tensor: Tensor) -> Sequence[Tensor]:
        if self.shares is None:
            return tensor.chunk(self.lanes, self.dim)
        return tensor.split(chunk_sizes(tensor.size(self.dim), self.lanes, self.shares), self.dim)

    def grads(self) -> dict[str, Tensor | None]:
        """The sums over the chunks, by name; None if no chunk has a gradient."""
        columns = zip(*[[*module.named_parameters(), *module.named_buffers()] for module in self.replicas], strict=True)
        return {column[0][0]: sum_of([tensor.grad for _, tensor in column]) for column in columns}


def sum_of(grads: Sequence[Tensor | None]) -> Tensor | None:
    present = [grad for grad in grads if grad is not None]
    if len({grad.layout for grad in present}) > 1:
        present = [grad.to_dense() for grad in present]
    return reduce(torch.add, present) if present else None


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


def assert_grads(base: nn.Module, grads: dict[str, Tensor | None], atol: float = 1e-6, rtol: float = 1e-5) -> None:
    for name, tensor in (*base.named_parameters(), *base.named_buffers()):
        ours, theirs = tensor.grad, grads.get(name)
        assert (ours is None) == (theirs is None), name
        if ours is not None and theirs is not None:
            assert ours.layout == theirs.layout, name
            close = {"atol": atol, "rtol": rtol, "check_device": False}
            torch.testing.assert_close(ours.to_dense(), theirs.to_dense(), **close, msg=lambda m, n=name: f"{n}: {m}")


def grads_of(module: nn.Module) -> dict[str, Tensor | None]:
    return {name: parameter.grad for name, parameter in module.named_parameters()}
