"""The 1,797 images of handwritten digits in scikit-learn."""

from functools import cache

import torch
from torch import Tensor

from dpbench.cases.names import Data
from dpbench.workloads.workload import WorkloadError

SIDE = 8
PIXELS = SIDE * SIDE
LEVELS = 17
"""Grey values are the integers from 0 to 16."""


@cache
def load() -> tuple[Tensor, Tensor]:
    """All images, int64 of shape (1797, 8, 8), and labels from 0 to 9; raise WorkloadError without scikit-learn."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise WorkloadError(
            f"data: {Data.DIGITS.value!r} needs scikit-learn ({error}); install torch-dpbench[digits], "
            f"or use {Data.RANDOM.value!r}"
        ) from error
    bundle = load_digits()
    return torch.from_numpy(bundle.images).long(), torch.from_numpy(bundle.target).long()


def draw(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """In a random order, which repeats for a batch larger than the data."""
    images, labels = load()
    order = torch.randperm(len(labels), generator=generator)
    chosen = order[torch.arange(size) % len(labels)]
    return images[chosen], labels[chosen]
