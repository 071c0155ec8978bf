"""Factories of users, right and wrong, for test_resolve."""

import os
import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dpbench.workloads.workload import Batch, Workload

not_callable = 3


def workload(**parts: Any) -> Workload:
    right: dict[str, Any] = {"model": lambda: nn.Linear(3, 2), "batch": draw, "loss": functional.cross_entropy}
    return Workload(**{**right, **parts})


def draw(size: int, generator: torch.Generator) -> Batch:
    return Batch((torch.randn(size, 3, generator=generator),), torch.randint(2, (size,), generator=generator))


def right() -> Workload:
    return workload()


def wrong_type() -> int:
    return 3


def takes_arguments(size: int) -> Workload:
    return workload()


def raises() -> Workload:
    raise RuntimeError("no weights\nat all")


def exits() -> Workload:
    sys.exit("bye")


def changes_the_process() -> Workload:
    os.chdir("/")
    torch.set_num_threads(torch.get_num_threads() + 1)
    sys.path.clear()
    return workload()
