"""Seeded samples of long parameter lists.

`make test` runs a sample, `make test-all` runs everything.

One seed decides all samples of a run. It is the environment variable ``DPBENCH_TEST_SEED``, or else the hash of the
checked-out commit, or else 0 outside a git checkout. `pytest_configure` puts the seed into the environment, so that
every xdist worker and every child process draws the same samples. The header of the run prints it.
``DPBENCH_TEST_ALL=1`` turns sampling off.
"""

import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from random import Random
from typing import TypeVar

SEED, ALL = "DPBENCH_TEST_SEED", "DPBENCH_TEST_ALL"
T = TypeVar("T")


def sampled(params: Iterable[T], keep: int) -> list[T]:
    """Return `keep` of `params`, drawn by the seed, in their given order.

    Return all of them if ``DPBENCH_TEST_ALL=1``.

    To keep ids beside the values, pass ``pytest.param(value, id=...)``. To sample a product of several lists, pass the
    product.
    """
    everything = list(params)
    if runs_everything() or keep >= len(everything):
        return everything
    drawn = Random(f"{seed()} {len(everything)} {keep}").sample(range(len(everything)), keep)
    return [everything[index] for index in sorted(drawn)]


def runs_everything() -> bool:
    """Return whether this run leaves nothing out."""
    return os.environ.get(ALL) == "1"


@cache
def seed() -> str:
    """Return the seed of this run's samples."""
    return os.environ.get(SEED) or _commit() or "0"


def header() -> str:
    """Return the line that names the seed, and how to repeat the run."""
    if runs_everything():
        return f"samples: none, {ALL}=1 runs every parameter"
    return f"samples: drawn by {SEED}={seed()}; {ALL}=1 runs every parameter"


def _commit() -> str | None:
    """Return the hash of the checked-out commit, or None outside a git checkout."""
    try:
        completed = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return completed.stdout.strip()
