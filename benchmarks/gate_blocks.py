"""How long, and how many, should the blocks of a gate's round be?

    python -m benchmarks.gate_blocks [--block-ms 1,5,10,40] [--seconds 1.5] [--rounds 4]

Base, twin and head are one commit: HEAD of this repository. Each line is a length of block. A round gives each length
the same time. The last two columns say how exactly a round knows the ratio of head to base: the standard error of the
median over blocks, from 400 resamples of the blocks, and its square times the seconds of all blocks.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks.about import heading
from dpbench.gate.revisions import Repository, gate_folder
from dpbench.gate.settings import DEFAULT_BENCHMARKS, Benchmark
from dpbench.gate.take_round import LOCKSTEP, Sides, quietest_core
from dpbench.run.launch import launch
from dpbench.run.messages import LockstepJob, LockstepJobs, LockstepRound, LockstepRounds, SideName

_RESAMPLES = 400
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Precision:
    """One benchmark in one round: the standard error of its ratio, its blocks, and the seconds of all blocks."""

    error: float
    blocks: int
    took_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--block-ms", type=lambda text: tuple(map(float, text.split(","))), default=(1, 5, 10, 40))
    parser.add_argument("--seconds", type=float, default=1.5, help="of the blocks of one side in one round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--benchmarks", type=lambda text: text.split(","), default=["launch_bound", "inference"])
    options = parser.parse_args()
    chosen = [each for each in DEFAULT_BENCHMARKS if each.name in options.benchmarks]
    print(heading("benchmarks.gate_blocks"))
    print(f"{'benchmark':16} {'block':>8} {'blocks':>7} {'error':>9} {'error^2 x s':>13}")
    found: dict[tuple[str, float], list[Precision]] = defaultdict(list)
    with gate_folder() as folder:
        repository = Repository(Path(__file__).parents[1])
        repository.write_commit(str(repository.resolve("--base", "HEAD").commit), folder / "base")
        for number in range(options.rounds):
            for block_ms in options.block_ms:
                for each in _round(chosen, folder / "base", block_ms / 1e3, options.seconds, number):
                    found[each.benchmark, block_ms].append(precision_of(each))
    for (name, block_ms), each_round in found.items():
        print(_line(name, block_ms, each_round))


def _round(chosen: list[Benchmark], base: Path, block_s: float, side_s: float, number: int) -> Iterator[LockstepRound]:
    core = (quietest_core(sorted(psutil.Process().cpu_affinity())),)
    sides = Sides(base, base)
    jobs = tuple(
        LockstepJob(
            benchmark=each.name,
            case=each.case(1, ("cpu", "cpu")),
            sides=sides.of(each.name),
            cores=core,
            blocks=math.ceil(side_s / block_s),
            block_s=block_s,
            timeout_s=_TIMEOUT_S,
            seed=number,
            checked=False,
        )
        for each in chosen
    )
    end = launch(LOCKSTEP, LockstepJobs(jobs=jobs).model_dump_json(), _TIMEOUT_S * len(jobs))
    yield from LockstepRounds.model_validate_json(end.record).rounds


def precision_of(found: LockstepRound) -> Precision:
    """Resample the blocks of a round."""
    logs = {side: np.log([np.mean(block) for block in blocks]) for side, blocks in found.times_s.items()}
    contrasts = logs[SideName.HEAD] - (logs[SideName.BASE] + logs[SideName.TWIN]) / 2
    drawn = np.random.default_rng(0).choice(contrasts, (_RESAMPLES, len(contrasts)))
    took_s = sum(sum(map(sum, blocks)) for blocks in found.times_s.values())
    return Precision(float(np.std(np.median(drawn, axis=1))), len(contrasts), took_s)


def _line(name: str, block_ms: float, rounds: list[Precision]) -> str:
    error = math.sqrt(np.mean([each.error**2 for each in rounds]))
    cost = np.mean([each.error**2 * each.took_s for each in rounds])
    blocks = round(np.mean([each.blocks for each in rounds]))
    return f"{name:16} {block_ms:5g} ms {blocks:7} {100 * error:7.2f} % {1e4 * cost:10.2f}e-4"


if __name__ == "__main__":
    main()
