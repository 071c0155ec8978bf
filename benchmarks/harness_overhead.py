"""The time that the harness adds to a sample and between samples, for an empty step.

python -m benchmarks.harness_overhead
"""

import time
from statistics import median

import torch

from benchmarks.about import heading
from dpbench.measure.clock import make_clock
from dpbench.measure.ranks.team import Solo
from dpbench.measure.sample import sample
from dpbench.measure.stopping import StopRule, WarmUp

_SECONDS = 2.0


class NoWindow:
    """A window that reads nothing."""

    def begin(self) -> None:
        """Do nothing."""

    def end(self, steps: int) -> None:
        """Do nothing."""


def empty() -> None:
    """Do nothing."""


def main() -> None:
    print(heading("benchmarks.harness_overhead"))
    clock = make_clock([torch.device("cpu")] * 2)
    rule = StopRule(max_s=_SECONDS, width=-1.0)  # no interval is this narrow, so the time decides
    begin_s = time.perf_counter()
    found = sample(empty, clock, Solo(), WarmUp(max_s=0.0), rule, window=NoWindow())
    per_sample_s = (time.perf_counter() - begin_s) / len(found.times_s)
    ordered = sorted(found.times_s)
    print(f"{len(ordered):,} samples of an empty step, two CPU lanes, {_SECONDS:g} s")
    most_s = ordered[int(0.99 * len(ordered))]
    print(f"in a sample: median {1e9 * median(ordered):.0f} ns, 99 % below {1e9 * most_s:.0f} ns")
    print(f"from one sample to the next: {1e9 * per_sample_s:.0f} ns, with the stop rule")


if __name__ == "__main__":
    main()
