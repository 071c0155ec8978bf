"""The points of the grid at which variants are compared in one process."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """One point of the grid; every variant gets `threads_per_lane` intra-op threads, whatever its scheme."""

    workload: str
    batch: int
    devices: tuple[str, ...]
    rounds: int
    threads_per_lane: int = 1
