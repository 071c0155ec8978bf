"""Kill a rank of a sweep on two machines at a random moment, call the sweep again, and check its records.

    python -m benchmarks.sweep_soak --runs 20 --output results/sweep-soak.md

The machines are network namespaces, with a torchrun agent and two ranks in each. The seed chooses the moment and the
process: a rank's dpbench, or its child. Then no record that was complete may be lost, changed or doubled, and no
process may be left on either machine. The second call must measure what is missing.
"""

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from benchmarks.about import heading
from benchmarks.two_machines import Machine, Rank, two_machines, wait_until_empty
from dpbench.results.record import Outcome, Record
from dpbench.results.store import Store

VARIANTS = ("ddp", "ddp[static_graph=true]", "ddp[bucket_cap_mb=1]", "ddp[hook=fp16]")
SPEC = f"""
variants = {list(VARIANTS)}
workloads = ["mlp/tiny"]
rounds = 1
threads = 1
case_time = "0.2s"
timeout = "2m"
"""
RECORDS = len(VARIANTS) + 1  # and the single-device baseline
_PATIENCE_S = 30.0
_LONGEST_S = 400.0
_COUNTS = ("records at the kill", "after it", "at the end", "failed", "lost", "doubled", "left")
_COLUMNS = ("seed", "killed", "at, s", "codes", *_COUNTS)
Machines = tuple[Machine, Machine]


@dataclass(frozen=True)
class Run:
    """One killed sweep, and the call that ends it.

    `killed` is the process, `at_s` when, since the start. `codes` are the exit codes of the agents of both calls.
    `at_kill`, `after_kill` and `at_end` count complete records. `lost` counts those of an earlier moment that are
    absent or differ at the end, `doubled` those with a key that is there twice, `missing` the plan's that are not
    there. `failed` records have an outcome other than ok. `left` names processes that outlived a call.
    """

    seed: int
    killed: Rank
    at_s: float
    codes: tuple[tuple[int, ...], tuple[int, ...]]
    at_kill: int
    after_kill: int
    at_end: int
    failed: int
    lost: int
    doubled: int
    missing: int
    left: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is lost, doubled, missing or left, and at most the case of the kill has failed."""
        wrong = self.lost, self.doubled, self.missing, len(self.left)
        return not any(wrong) and self.failed <= 1 and not any(self.codes[1])


def soak_run(seed: int, machines: Machines, folder: Path, longest_s: float) -> Run:
    """Run the sweep with a kill within `longest_s` of its first rank, then again. `folder` must be new."""
    rng = Random(seed)
    path = folder / "results/runs/sweep-soak.jsonl"
    (folder / "soak.toml").write_text(SPEC)
    with (folder / "output.txt").open("wb") as output:
        start_s = time.monotonic()
        agents = [machine.torchrun(["-m", "dpbench", "sweep", "soak.toml"], folder, output) for machine in machines]
        _ranks(machines)
        time.sleep(rng.uniform(0, longest_s))
        before, killed = _kill(machines, path, rng)
        at_s = time.monotonic() - start_s
        first = tuple(agent.wait(_LONGEST_S) for agent in agents)
        left = _left(machines)
        between = _lines(path)
        again = [machine.torchrun(["-m", "dpbench", "sweep", "soak.toml"], folder, output) for machine in machines]
        second = tuple(agent.wait(_LONGEST_S) for agent in again)
        left += _left(machines)
    lines, records = _lines(path), Store(path).read().records
    keys = Counter(record.key for record in records)
    return Run(
        seed=seed,
        killed=killed,
        at_s=at_s,
        codes=(first, second),
        at_kill=len(before),
        after_kill=len(between),
        at_end=len(lines),
        failed=sum(record.outcome is not Outcome.OK for record in records),
        lost=_lost(before, between) + _lost(between, lines),
        doubled=sum(keys.values()) - len(keys),
        missing=RECORDS - len(keys),
        left=left,
    )


def _ranks(machines: Machines) -> list[Rank]:
    """Wait for the first process of a rank, and return all that there are."""
    deadline_s = time.monotonic() + _LONGEST_S
    while not (found := [rank for machine in machines for rank in machine.ranks()]):
        assert time.monotonic() < deadline_s, "no rank was started"
        time.sleep(0.05)
    return sorted(found, key=lambda rank: (rank.rank, rank.what, rank.pid))


def _kill(machines: Machines, path: Path, rng: Random) -> tuple[list[bytes], Rank]:
    """Kill one process of a rank, chosen at random. Return the complete lines of just before, and the process."""
    while True:
        victim, before = rng.choice(_ranks(machines)), _lines(path)
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
            return before, victim


def _lines(path: Path) -> list[bytes]:
    """Return the complete lines of the file, none if there is no file."""
    return path.read_bytes().splitlines(keepends=True)[: _newlines(path)] if path.exists() else []


def _newlines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _lost(before: Sequence[bytes], now: Sequence[bytes]) -> int:
    return len(before) - sum(one == other for one, other in zip(before, now, strict=False))


def _left(machines: Machines) -> tuple[str, ...]:
    left = wait_until_empty(machines, _PATIENCE_S)
    return tuple(f"{name}: {command}" for name, commands in left.items() for command in commands)


def undisturbed_s(machines: Machines, folder: Path) -> float:
    """Run the sweep without a kill. Return the seconds from the first rank's start to the end."""
    (folder / "soak.toml").write_text(SPEC)
    with (folder / "output.txt").open("wb") as output:
        agents = [machine.torchrun(["-m", "dpbench", "sweep", "soak.toml"], folder, output) for machine in machines]
        _ranks(machines)
        start_s = time.monotonic()
        codes = [agent.wait(_LONGEST_S) for agent in agents]
    assert codes == [0, 0], (folder / "output.txt").read_text()[-3000:]
    records = Store(folder / "results/runs/sweep-soak.jsonl").read().records
    assert len(records) == RECORDS, records
    assert all(_is_plain(record) for record in records), records
    return time.monotonic() - start_s


def _is_plain(record: Record) -> bool:
    is_on_all = record.case.machines == 2 and len(record.case.devices) == 4
    return record.outcome is Outcome.OK and is_on_all == record.case.variant.is_per_rank


def soak_page(found: Sequence[Run], clean_s: float, about: str) -> str:
    """Return the page: a summary, and a row for each run."""
    clean = sum(run.is_clean for run in found)
    lost, doubled, left = (
        sum(each) for each in zip(*((run.lost + run.missing, run.doubled, len(run.left)) for run in found), strict=True)
    )
    lines = [
        "# Sweeps over two machines with a killed rank each",
        "",
        "Each run starts a sweep of `ddp` and three of its options over two network namespaces with two ranks each.",
        "It kills one process of a rank with SIGKILL at a random moment, and calls the sweep again.",
        f"{clean} of {len(found)} runs are clean: {lost} records lost, {doubled} doubled, {left} processes left.",
        f"An undisturbed sweep took {clean_s:.0f} s from its first rank's start to its end.",
        "",
        "```",
        about,
        "```",
        "",
        "The case that was running has the outcome crashed. If a child was killed, the sweep goes on. If a rank's",
        "dpbench was killed, the call ends. The second call measures what is missing. Codes are those of the agents.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"|{'---|' * len(_COLUMNS)}",
    ]
    return "\n".join([*lines, *map(_row, found)]) + "\n"


def _row(run: Run) -> str:
    codes = " then ".join(" ".join(map(str, each)) for each in run.codes)
    cells = [run.seed, f"rank {run.killed.rank}, {run.killed.what}", f"{run.at_s:.1f}", codes]
    counts = [run.at_kill, run.after_kill, run.at_end, run.failed, run.lost + run.missing, run.doubled, len(run.left)]
    return f"| {' | '.join(map(str, [*cells, *counts]))} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep_soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    about, found = heading("benchmarks.sweep_soak"), list[Run]()
    with two_machines(f"dps{os.getpid()}") as machines, TemporaryDirectory() as folder:
        clean = Path(folder) / "clean"
        clean.mkdir()
        clean_s = undisturbed_s(machines, clean)
        for seed in range(options.runs):
            own = Path(folder) / str(seed)
            own.mkdir()
            found.append(soak_run(seed, machines, own, clean_s))
            options.output.write_text(soak_page(found, clean_s, about))
            print(_row(found[-1]), *found[-1].left, flush=True)
    sys.exit(0 if all(run.is_clean for run in found) else 1)


if __name__ == "__main__":
    main()
