"""Children of one process a round, against a process for each child.

    python -m benchmarks.round_processes --rounds 40

Both ways measure the same cases in turns, so that a drift of the machine hits both. Three questions: do the medians
agree, how far do rounds spread, and are the cases of one round alike because they share addresses and a hash seed?
A pair of cases has the correlation of its log medians over the rounds. Intervals are percentile bootstraps over rounds.
"""

import argparse
from collections.abc import Callable, Sequence
from itertools import combinations
from random import Random
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks.about import heading
from dpbench.results.record import Outcome
from dpbench.run.interpret import interpret
from dpbench.run.messages import Job
from dpbench.run.rounds import RoundProcesses, run_alone
from dpbench.stats.rounds import ratio_of_rounds
from dpbench.sweep.case import Case

VARIANTS = ("single", "floor", "naive", "tuned", "ddp")
_TIMEOUT_S = 120.0
_RESAMPLES = 2000
Logs = NDArray[np.float64]
"""Log medians, a row for each round and a column for each case."""


def case_of(variant: str) -> Case:
    devices = ("cpu",) if variant == "single" else ("cpu", "cpu")
    return Case(variant=variant, workload="mlp/small", batch=64, devices=devices, threads=2)


def measure(rounds: int, sampling_s: float) -> tuple[Logs, Logs]:
    """Return the log medians of the children of one process a round, and of processes of their own."""
    rng, forked, alone = Random(0), np.empty((rounds, len(VARIANTS))), np.empty((rounds, len(VARIANTS)))
    processes = RoundProcesses()
    for number in range(rounds):
        ways: list[tuple[Logs, Callable[[Job], object]]] = [
            (forked, lambda job: processes.launch(job, _TIMEOUT_S)),
            (alone, lambda job: run_alone(job, _TIMEOUT_S)),
        ]
        rng.shuffle(ways)
        order = rng.sample(range(len(VARIANTS)), len(VARIANTS))
        for logs, launch in ways:
            for column in order:
                job = Job(run="r", case=case_of(VARIANTS[column]), round=number, sampling_s=sampling_s)
                record = interpret(launch(job), job)
                assert record.outcome is Outcome.OK, record.reason
                logs[number, column] = np.log(median(record.samples_s))
        processes.end_round()
    return forked, alone


def spread_ratio(forked: Logs, alone: Logs) -> float:
    """Return the geometric mean over cases of forked's standard deviation over alone's."""
    return float(np.exp(np.mean(np.log(forked.std(axis=0, ddof=1) / alone.std(axis=0, ddof=1)))))


def correlation(logs: Logs) -> float:
    """Return the mean correlation of the pairs of cases."""
    found = np.corrcoef(logs.T)
    return float(np.mean([found[pair] for pair in combinations(range(logs.shape[1]), 2)]))


def over_rounds(value: Callable[..., float], *logs: Logs) -> str:
    """Return the value with its 95 % interval."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(len(logs[0]), size=len(logs[0])) for _ in range(_RESAMPLES)]
    low, high = np.percentile([value(*(each[row] for each in logs)) for row in rows], (2.5, 97.5))
    return f"{value(*logs):.2f} [{low:.2f}, {high:.2f}]"


def report(forked: Logs, alone: Logs) -> Sequence[str]:
    lines = ["| case | one process a round, ms | a process each, ms | ratio of medians | spread, % | spread each, % |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    for column, variant in enumerate(VARIANTS):
        one, each = forked[:, column], alone[:, column]
        ratio = ratio_of_rounds([[value] for value in np.exp(one)], [[value] for value in np.exp(each)])
        lines.append(
            f"| {variant} | {1e3 * np.exp(np.median(one)):.2f} | {1e3 * np.exp(np.median(each)):.2f} "
            f"| {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] "
            f"| {100 * one.std(ddof=1):.1f} | {100 * each.std(ddof=1):.1f} |"
        )
    lines += ["", f"ratio of spreads: {over_rounds(spread_ratio, forked, alone)}"]
    lines += [f"correlation of cases, one process a round: {over_rounds(correlation, forked)}"]
    lines += [f"correlation of cases, a process each: {over_rounds(correlation, alone)}"]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.round_processes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--sampling-s", type=float, default=1.0)
    options = parser.parse_args()
    print(heading("benchmarks.round_processes"))
    print("\n".join(report(*measure(options.rounds, options.sampling_s))))


if __name__ == "__main__":
    main()
