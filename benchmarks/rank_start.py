"""Compare the time to start the ranks of a `ddp` case with that of bare torchrun, in pairs.

    python -m benchmarks.rank_start --pairs 10

    torchrun    an agent, and this module in each of two ranks:  gloo, DistributedDataParallel, first forward
    dpbench     the process of a round, which forks both ranks:                      the same

Each time is from the start of the first process to the end of rank 0's first forward.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.about import heading
from dpbench.results.record import Outcome
from dpbench.run.interpret import interpret
from dpbench.run.messages import Job
from dpbench.run.rounds import run_alone
from dpbench.stats.rounds import ratio_of_rounds
from dpbench.sweep.case import Case

if TYPE_CHECKING:
    from dpbench.workloads.workload import Workload

_RANKS = 2
_STAMP = "DPBENCH_RANK_START_STAMP"
_ROOT = Path(__file__).parents[1]
_TIMEOUT_S = 120.0
_CASE = Case(variant="ddp", workload="benchmarks.rank_start:stamping", batch=64, devices=("cpu",) * _RANKS, threads=1)


def stamping() -> "Workload":
    """Return `mlp/tiny`, whose loss notes the time of its first call in rank 0."""
    from dataclasses import replace

    from torch import distributed as dist

    from dpbench.sweep.names import Data
    from dpbench.workloads.resolve import resolve

    plain, path = resolve("mlp/tiny", Data.RANDOM), Path(os.environ[_STAMP])

    def loss(output: Any, target: Any) -> Any:
        if dist.get_rank() == 0 and not path.exists():
            path.write_text(repr(time.monotonic()))
        return plain.loss(output, target)

    return replace(plain, loss=loss)


def be_a_rank() -> None:
    """Do what a user's script does under torchrun, up to the first forward."""
    import torch
    from torch import distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    workload = stamping()
    model = DistributedDataParallel(workload.model())
    batch = workload.batch(_CASE.batch // _RANKS, torch.Generator().manual_seed(0))
    workload.loss(model(*batch.inputs), batch.target).backward()
    dist.destroy_process_group()


def _torchrun() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(_RANKS)]
    place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    subprocess.run([*command, *place, "-m", "benchmarks.rank_start", "--as-rank"], cwd=_ROOT, check=True)


def _dpbench() -> None:
    job = Job(run="start", case=_CASE, round=0, sampling_s=0.2)
    record = interpret(run_alone(job, _TIMEOUT_S), job)
    assert record.outcome is Outcome.OK, record.reason


def _seconds_to_first_forward(start: Callable[[], None], stamp: Path) -> float:
    stamp.unlink(missing_ok=True)
    start_s = time.monotonic()
    start()
    return float(stamp.read_text()) - start_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rank_start", description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        be_a_rank()
        return
    print(heading("benchmarks.rank_start"))
    os.environ |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    os.chdir(_ROOT)  # a child imports the workload from here
    ways, times_s, rng = [_torchrun, _dpbench], dict[Callable[[], None], list[float]](), Random(0)
    with TemporaryDirectory() as folder:
        stamp = Path(folder) / "stamp"
        os.environ[_STAMP] = str(stamp)
        for _ in range(options.pairs):
            for way in rng.sample(ways, 2):
                times_s.setdefault(way, []).append(_seconds_to_first_forward(way, stamp))
    bare_s, own_s = times_s[_torchrun], times_s[_dpbench]
    ratio = ratio_of_rounds([(each,) for each in own_s], [(each,) for each in bare_s])
    interval = "" if ratio.low is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
    print(
        f"{_RANKS} ranks to the end of rank 0's first forward, medians of {options.pairs}: torchrun "
        f"{median(bare_s):.2f} s, dpbench {median(own_s):.2f} s; ratio {ratio.value:.2f}{interval}"
    )


if __name__ == "__main__":
    main()
