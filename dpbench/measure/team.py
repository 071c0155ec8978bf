"""The processes of one case, and how they agree on what a sample was."""

from typing import Protocol, TypeVar

import torch
from torch import distributed as dist

T = TypeVar("T")


class Team(Protocol):
    """The ranks that take each step together. `rank` 0 speaks for all."""

    rank: int
    size: int

    def line_up(self) -> None:
        """Return when every rank has come here."""

    def slowest(self, step_s: float, elapsed_s: float) -> tuple[float, float, float]:
        """The slowest rank's step time, the skew (slowest less fastest), the longest elapsed time."""

    def gather(self, told: T) -> list[T]:
        """What each rank tells, in their order."""


class Solo:
    """One process serves all devices."""

    rank = 0
    size = 1

    def line_up(self) -> None:
        """Nobody to wait for."""

    def slowest(self, step_s: float, elapsed_s: float) -> tuple[float, float, float]:
        return step_s, 0.0, elapsed_s

    def gather(self, told: T) -> list[T]:
        return [told]


class Ranks:
    """One process per device; they talk through gloo on the host, whatever carries the gradients."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._group = dist.new_group(backend="gloo")

    def line_up(self) -> None:
        dist.barrier(group=self._group)

    def slowest(self, step_s: float, elapsed_s: float) -> tuple[float, float, float]:
        told = torch.tensor([step_s, -step_s, elapsed_s], dtype=torch.float64)
        dist.all_reduce(told, op=dist.ReduceOp.MAX, group=self._group)
        slowest, minus_fastest, elapsed = told.tolist()
        return slowest, slowest + minus_fastest, elapsed

    def gather(self, told: T) -> list[T]:
        gathered = [told] * self.size
        dist.all_gather_object(gathered, told, group=self._group)
        return gathered
