"""A rank of a sweep over two machines is killed at a random moment; the sweep is called again.

The machines are network namespaces, with a torchrun agent and two ranks in each. The seed chooses the moment and the
process: a rank's dpbench, or its child. Then no record that was complete may be lost, changed or doubled, and no
process may be left on either machine. The second call must measure what is missing.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from dpbench.records.record import Outcome, Record
from dpbench.records.store import read_rows
from tests.sampling import sampled
from tests.two_machines import Machine, Rank, wait_until_empty

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
LATEST_S = 30.0
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
    lines, records = _lines(path), read_rows(path, Record).rows
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
    while not (ranks := [rank for machine in machines for rank in machine.ranks()]):
        assert time.monotonic() < deadline_s, "no rank was started"
        time.sleep(0.05)
    return sorted(ranks, key=lambda rank: (rank.rank, rank.what, rank.pid))


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


@pytest.mark.exhaustive
@pytest.mark.timeout(590)
@pytest.mark.parametrize("seed", sampled(range(20, 40), 1))
def test_no_record_is_lost_or_doubled_and_no_process_is_left(machines, tmp_path, seed):
    run = soak_run(seed, machines, tmp_path, LATEST_S)
    assert run.is_clean, f"{run}\n{(tmp_path / 'output.txt').read_text()[-3000:]}"
