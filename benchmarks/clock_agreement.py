"""Compare dpbench's clock with torch.utils.benchmark, on one step in one process.

    python -m benchmarks.clock_agreement

In each round both time one step, in random order. Each runs two untimed steps first, as `Timer.timeit` does.
"""

import argparse
from collections.abc import Callable
from random import Random

import torch
from torch.utils.benchmark import Timer

from benchmarks.about import heading
from dpbench.measure.clock import Clock, make_clock
from dpbench.measure.interleave import paired_ratio
from dpbench.measure.session import open_session
from dpbench.sweep.case import Case
from dpbench.sweep.variants import VariantName

_WARM_UP = 50


def main() -> None:
    options = _options()
    print(heading("benchmarks.clock_agreement"))
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    case = Case(
        variant=VariantName.SINGLE,
        workload=options.workload,
        batch=options.batch,
        devices=(str(device),),
        threads=options.threads,
    )
    step = open_session(case).step
    clock = make_clock([device])
    timer = Timer("step()", globals={"step": step}, num_threads=options.threads)
    ours, theirs = in_turn(lambda: one_step_s(step, clock), lambda: timer.timeit(1).mean, options.rounds)
    ratio = paired_ratio(ours, theirs)
    bound = max(ratio.high - 1, 1 - ratio.low)
    print(f"{case.id}, {options.rounds} rounds, median step {sorted(ours)[len(ours) // 2] * 1e6:,.1f} us")
    print(
        f"our time over torch's: {ratio.value:.4f} [{ratio.low:.4f}, {ratio.high:.4f}]; "
        f"upper 95 % bound of the difference: {bound:.2%}"
    )


def one_step_s(step: Callable[[], object], clock: Clock) -> float:
    """Return the seconds of one step, after two untimed steps."""
    step()
    step()
    start_s = clock()
    step()
    return clock() - start_s


def in_turn(one: Callable[[], float], other: Callable[[], float], rounds: int) -> tuple[list[float], list[float]]:
    """Return the times of both timers, which run once in each round, in random order."""
    rng = Random(0)
    times_s: dict[int, list[float]] = {0: [], 1: []}
    for number in range(-_WARM_UP, rounds):
        for which in rng.sample((0, 1), 2):
            time_s = (one, other)[which]()
            if number >= 0:
                times_s[which].append(time_s)
    return times_s[0], times_s[1]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clock_agreement")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workload", default="mlp/small")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
