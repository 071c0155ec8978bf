"""The time that telemetry adds to a step on a GPU.

    python -m benchmarks.telemetry_cost [--device cuda:0] [--workload mlp/small] [--windows 40] [--steps 200]

It times windows of steps with and without telemetry, in turn, in one process. Telemetry is read only at the two edges
of a window, so the ratio of the median steps should be 1. The upper end of its 95 % interval must be at most 1.005.
The script also prints the noise, as the ratio of two sets of windows without telemetry. And it prints how long reading
both edges takes, which is outside the timed steps. Without a GPU it prints why it cannot run, and exits with 77.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable

import torch

from benchmarks.gpu_steps import NOT_RUN
from benchmarks.interleave import PairedRatio, paired_ratio
from dpbench.cases.case import Case
from dpbench.cases.variants import VariantName
from dpbench.measure.clock import make_clock
from dpbench.measure.gpu.telemetry import Telemetry, telemetry_of
from dpbench.measure.session import Session, open_session

BOUND = 1.005


def main() -> int:
    options = parse()
    if not torch.cuda.is_available():
        print(f"not run: torch {torch.__version__} has no CUDA device; telemetry needs an NVIDIA GPU")
        return NOT_RUN
    device = torch.device(options.device)
    if isinstance(reason := telemetry_of([device]).watches[str(device)], str):
        print(f"not run: {device}: {reason}")
        return NOT_RUN
    step, clock = session_on(device, options.workload, options.batch).step, make_clock([device])
    for _ in range(options.steps):
        step()
    medians_s: dict[str, list[float]] = {"on": [], "off": [], "off again": []}
    edges_s: list[float] = []
    order, rng = list(medians_s), random.Random(0)
    for _ in range(options.windows):
        rng.shuffle(order)
        for kind in order:
            using = telemetry_of([device]) if kind == "on" else Telemetry({str(device): "off"})
            median_s, edge_s = window(using, step, clock, options.steps)
            medians_s[kind].append(median_s)
            if kind == "on":
                edges_s.append(edge_s)
    report(medians_s, edges_s, options, device)
    return 0


def window(
    telemetry: Telemetry, step: Callable[[], object], clock: Callable[[], float], steps: int
) -> tuple[float, float]:
    """The median step and the time of reading both edges, in seconds."""
    clock()
    start_s = time.perf_counter()
    telemetry.begin()
    edge_s = time.perf_counter() - start_s
    times_s = []
    for _ in range(steps):
        start_s = clock()
        step()
        times_s.append(clock() - start_s)
    start_s = time.perf_counter()
    telemetry.end(steps)
    return statistics.median(times_s), edge_s + time.perf_counter() - start_s


def session_on(device: torch.device, workload: str, batch: int) -> Session:
    case = Case(variant=VariantName.SINGLE, workload=workload, batch=batch, devices=(str(device),), threads=1)
    return open_session(case)


def report(
    medians_s: dict[str, list[float]], edges_s: list[float], options: argparse.Namespace, device: torch.device
) -> None:
    cost = paired_ratio(medians_s["on"], medians_s["off"])
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, {options.workload}, batch {options.batch}")
    print(f"{options.windows} windows of {options.steps} steps of {1e3 * statistics.median(medians_s['off']):.4g} ms")
    print(f"on / off   {line(cost)}")
    print(f"off / off  {line(paired_ratio(medians_s['off again'], medians_s['off']))}")
    print(f"both edges {1e3 * statistics.median(edges_s):.4g} ms a window, outside the timed steps")
    print(f"bound of {BOUND}: {'held' if cost.high <= BOUND else 'not held'}")


def line(ratio: PairedRatio) -> str:
    return f"{ratio.value:.5f} [{ratio.low:.5f}, {ratio.high:.5f}]"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--workload", default="mlp/small")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--windows", type=int, default=40)
    parser.add_argument("--steps", type=int, default=200)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
