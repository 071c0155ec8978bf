"""The settings at which variants are compared in one process."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """Every variant gets `threads_per_lane` intra-op threads."""

    workload: str
    batch: int
    devices: tuple[str, ...]
    rounds: int
    threads_per_lane: int = 1
