"""Steps of an LSTM in inference and of a wide linear layer in training, on two CPU lanes, interleaved in one process.

Prints each scheme's fastest and median step, and its ratio to `naive`'s steps with a 95 % interval::

    .venv/bin/python -m benchmarks.rnn_and_linear 200
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.measure.interleave import interleave, paired_ratio
from dpbench.parallel import DataParallel, Policy
from dpbench.variants.naive import Naive

WARMUP_ROUNDS = 30


class Outputs(nn.Module):
    """The outputs of an LSTM without its states."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(64, 128, 2, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        return self.inner(x)[0]


def compare(
    name: str, base: nn.Module, step: Callable[[nn.Module, Callable[[], Any]], None], x: Tensor, rounds: int
) -> None:
    """Print the times of all schemes."""
    schemes: dict[str, Any] = {"naive": Naive(base, [torch.device("cpu")] * 2)}
    for dispatch in ("auto", "threads", "sequence"):
        schemes[dispatch] = DataParallel(base, ["cpu"] * 2, policy=Policy(dispatch=dispatch))
    steps = {key: lambda scheme=scheme: step(base, lambda: scheme(x)) for key, scheme in schemes.items()}
    times_s = interleave(steps, time.perf_counter, rounds, WARMUP_ROUNDS, seed=0)
    for key, times in times_s.items():
        ratio = paired_ratio(times, times_s["naive"])
        print(
            f"{name:6} {key:8} fastest {min(times) * 1e3:6.2f} ms, median {statistics.median(times) * 1e3:6.2f} ms; "
            f"fastest / naive's {min(times) / min(times_s['naive']):.3f}; "
            f"ratio {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
        )


def infer(_base: nn.Module, forward: Callable[[], Any]) -> None:
    with torch.no_grad():
        forward()


def train(base: nn.Module, forward: Callable[[], Any]) -> None:
    base.zero_grad()
    forward().sum().backward()


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    compare("lstm", Outputs().eval(), infer, torch.randn(32, 32, 64), rounds)
    compare("linear", nn.Linear(2048, 2048), train, torch.randn(64, 2048), rounds)


if __name__ == "__main__":
    main(int(sys.argv[1]))
