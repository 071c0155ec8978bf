"""Host time that a training step of the tuned wrapper takes on simulated accelerators, in two commits.

    .venv/bin/python -m benchmarks.issue_time --base REV [--rounds 30] [--devices 4,8]

Two processes take turns, a step each, in random order: one with the wrapper of REV, one with that of the working tree.
The layers are those of a 24-layer encoder and of ResNet-50 with a fraction of the width, and buckets are smaller by
the same factor. So tensors and buckets are as many as in the full model, but computing them takes little. What is left
is the time of Python, autograd and the simulator. The simulator makes each operator dearer than CUDA does. So the
ratio understates what the wrapper's own calls save or cost.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from torch import nn

from dpbench.run.wrapper_of import use_folder
from dpbench.workloads.convnet import ConvnetSize, ResNet

ROOT = Path(__file__).resolve().parents[1]
MIB = 1024 * 1024
WARMUP_STEPS = 3


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 24, enable_nested_tensor=False)


MODELS = {
    "encoder24": (encoder, (2, 64), (1024 // 64) ** 2),
    "resnet50": (partial(ResNet, ConvnetSize((3, 4, 6, 3), 8, 32, 10)), (3, 32, 32), (64 // 8) ** 2),
}
"""The model, the shape of one item, and the factor by which its weights are smaller than the full model's."""


def serve(model: str, devices: int) -> None:
    """Take one step for each line on stdin, and print its process time in seconds."""
    from dpbench.parallel import DataParallel, Policy
    from dpbench.simulator import simulate

    torch.set_num_threads(1)
    simulate(devices)
    make, item, factor = MODELS[model]
    names = [f"sim:{i}" for i in range(devices)]
    base = make().to(names[0])
    policy = Policy(dispatch="sequence", bucket_bytes=10 * MIB // factor, first_bucket_bytes=MIB // factor)
    wrapper = DataParallel(base, names, policy=policy)
    optimizer = torch.optim.SGD(base.parameters(), lr=1e-3)
    batch = torch.randn(2 * devices, *item)  # batch norm needs two items

    def step() -> float:
        start_s = time.process_time()
        optimizer.zero_grad()
        wrapper(batch).sum().backward()
        optimizer.step()
        return time.process_time() - start_s

    for _ in range(WARMUP_STEPS):
        step()
    for _ in sys.stdin:
        print(step(), flush=True)


class Side:
    """A process that takes steps with the wrapper of one folder."""

    def __init__(self, folder: Path, model: str, devices: int) -> None:
        command = [sys.executable, "-m", "benchmarks.issue_time", "--serve", str(folder), model, str(devices)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def step_time_s(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"issue_time: a side ended with exit code {self._process.wait()}; its error is above")
        return float(line)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def compare(base: Path, model: str, devices: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the step times of both sides, base's first, in seconds."""
    sides = [Side(base, model, devices), Side(ROOT, model, devices)]
    times: tuple[list[float], list[float]] = ([], [])
    try:
        for _ in range(rounds):
            for which in random.sample((0, 1), 2):
                times[which].append(sides[which].step_time_s())
    finally:
        for side in sides:
            side.stop()
    return times


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the median."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def unpack(revision: str, folder: Path) -> None:
    """Write the files of a commit into `folder`. Exit with code 2 and one line if there is no such commit."""
    archive = subprocess.run(["git", "archive", revision, "dpbench"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        print(
            f"--base: {revision!r} is no commit of this repository; allowed: a revision that git knows", file=sys.stderr
        )
        raise SystemExit(2)
    subprocess.run(["tar", "--extract", "--directory", str(folder)], input=archive.stdout, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", required=True, metavar="REV", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=30, choices=range(5, 1001), metavar="5..1000")
    parser.add_argument("--devices", default="4,8", help="numbers of simulated devices, such as 4,8")
    options = parser.parse_args()
    counts = options.devices.split(",")
    if not all(count.isdigit() and 2 <= int(count) <= 64 for count in counts):
        parser.error(f"--devices: {options.devices!r}; allowed: numbers from 2 to 64, separated by commas")
    with tempfile.TemporaryDirectory() as folder:
        unpack(options.base, Path(folder))
        for model in MODELS:
            for count in map(int, counts):
                before, after = compare(Path(folder), model, count, options.rounds)
                ratios = [new / old for old, new in zip(before, after, strict=True)]
                low, high = interval(ratios)
                print(
                    f"{model} on {count} devices: {1e3 * statistics.median(before):.1f} ms before, "
                    f"{1e3 * statistics.median(after):.1f} ms after, ratio {statistics.median(ratios):.3f} "
                    f"[{low:.3f}, {high:.3f}], {options.rounds} rounds",
                    flush=True,
                )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        use_folder(Path(sys.argv[2]))
        serve(sys.argv[3], int(sys.argv[4]))
    else:
        main()
