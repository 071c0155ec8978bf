"""The tasks of a step: what runs where, what it costs, and what it waits for. Pure.

A task holds all of its `resources` from its start to its end. Each resource serves one task at a time, the first that
is ready. Tasks are in program order, so `before` names earlier tasks only::

    thread main   [issue op 1][issue op 2][issue copy]
                       │           │          └──────────────┐
    sim:0 compute      └─[ op 1 ]──└─[   op 2   ]            v
    link up, link down                           └── wait ──[  copy  ]
"""

from dataclasses import dataclass, field
from enum import StrEnum

Rate = tuple[str, ...]
"""What a unit of cost is: ``("flop", "matmul")``, ``("host", "view")``; `rates.py` says how many seconds one takes."""
LOCK = "interpreter lock"


class Role(StrEnum):
    HOST = "host"
    COMPUTE = "compute"
    LINK = "link"


@dataclass(slots=True, eq=False)
class Task:
    """`cost` is the amount of each rate. `device` is the device's index, None for a task of the host.

    `streams` has the device and the number of each stream that the task runs on; none for a task of the host.
    """

    role: Role
    name: str
    resources: tuple[str, ...]
    cost: dict[Rate, float]
    before: tuple[int, ...] = ()
    device: int | None = None
    phase: str = ""
    streams: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True, eq=False)
class Tasks:
    """All tasks of a replay, in program order. `step_ends` has the number of tasks at the end of each step."""

    all: list[Task] = field(default_factory=list)
    step_ends: list[int] = field(default_factory=list)

    def add(self, task: Task) -> int:
        """Add a task, and return its index. Its `before` must name earlier tasks."""
        assert all(earlier < len(self.all) for earlier in task.before), task
        self.all.append(task)
        return len(self.all) - 1

    def __len__(self) -> int:
        return len(self.all)
