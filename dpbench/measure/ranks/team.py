"""The processes of one case: they start each step together and agree on its time."""

from typing import TypeVar

import torch
from torch import distributed as dist

T = TypeVar("T")


class Team:
    """One process for all devices."""

    rank, size = 0, 1

    def line_up(self) -> None:
        """Wait until all ranks have called this."""

    def slowest(self, step_s: float, elapsed_s: float) -> tuple[float, float, float]:
        """The slowest step, its distance from the fastest, and the longest elapsed time, in seconds."""
        return step_s, 0.0, elapsed_s

    def gather(self, value: T) -> list[T]:
        return [value]


class Ranks(Team):
    """One process per device; they communicate by gloo, whatever backend reduces the gradients."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._group = dist.new_group(backend="gloo")

    def line_up(self) -> None:
        dist.barrier(group=self._group)

    def slowest(self, step_s: float, elapsed_s: float) -> tuple[float, float, float]:
        times_s = torch.tensor([step_s, -step_s, elapsed_s], dtype=torch.float64)
        dist.all_reduce(times_s, op=dist.ReduceOp.MAX, group=self._group)
        slowest, minus_fastest, elapsed = times_s.tolist()
        return slowest, slowest + minus_fastest, elapsed

    def gather(self, value: T) -> list[T]:
        gathered = [value] * self.size
        dist.all_gather_object(gathered, value, group=self._group)
        return gathered
