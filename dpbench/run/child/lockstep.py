"""The child that takes the steps of two commits in turns: LockstepJobs on stdin, LockstepRounds on a pipe of its own.

    python -m dpbench.run.child.lockstep --record-fd N --parent-pid P

parent ──launches──> this process: imports torch, once a round, and does nothing with it
                        ├──forks──> base    one after the other takes a block of steps, in random order;
                        ├──forks──> twin    the others sleep meanwhile
                        └──forks──> head

All three are pinned to the same cores. They are forks of one process, so that they share what differs from process to
process by chance (addresses of libraries, seed of hashes), and each round is a new process, so that none of these
chances decides alone. Where the three do not fit into a GPU's memory side by side, each block is a fork of its own.
"""

import argparse
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from random import Random

from dpbench.results.record import Outcome
from dpbench.run.child.lockstep_side import serve
from dpbench.run.child.process import answer, loading, run_and_exit
from dpbench.run.interpret import ending
from dpbench.run.launch import Exit
from dpbench.run.messages import LockstepJob, LockstepJobs, LockstepRound, LockstepRounds, SideName
from dpbench.run.process_tree import die_with_parent
from dpbench.sweep.host import ranges

# All that a side needs beside its own wrapper; torch.optim asks for the second with the first optimizer.
_PRELOADED = ("dpbench.run.child.lockstep_side", "torch._dynamo")


class SideError(Exception):
    """A side that cannot go on: its outcome and the reason."""

    def __init__(self, side: SideName, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.side, self.outcome, self.reason = side, outcome, reason


def main() -> None:
    options = _options()
    die_with_parent(options.parent_pid)
    asked = LockstepJobs.model_validate_json(sys.stdin.read())
    with loading():
        for module in _PRELOADED:
            import_module(module)
    rounds = tuple(_round(job) for job in asked.jobs)
    # Last, as asking for GPUs starts what no fork survives.
    from dpbench.measure.environment import read_environment

    answer(options.record_fd, LockstepRounds(rounds=rounds, environment=read_environment()).model_dump_json())


def _round(job: LockstepJob) -> LockstepRound:
    cores = ranges(sorted(job.cores))
    for resident in (True, False):
        try:
            times_s = _in_turns(job, _side_by_side if resident else _one_at_a_time)
        except SideError as error:
            if resident and error.outcome is Outcome.OUT_OF_MEMORY:
                continue  # they may fit one at a time
            return LockstepRound(
                benchmark=job.benchmark, outcome=error.outcome, reason=error.reason, side=error.side, cores=cores
            )
        return LockstepRound(
            benchmark=job.benchmark, outcome=Outcome.OK, times_s=times_s, cores=cores, resident=resident
        )
    raise AssertionError("unreachable: the last attempt returns")


Block = tuple[float, ...]
Turn = Callable[[SideName, int], Block]
"""Has a side take so many steps; the seconds of each."""


def _in_turns(
    job: LockstepJob, placed: Callable[[LockstepJob], AbstractContextManager[tuple[float, Turn]]]
) -> dict[SideName, tuple[Block, ...]]:
    order, rng = list(job.sides), Random(job.seed)
    times_s: dict[SideName, list[Block]] = {name: [] for name in order}
    with placed(job) as (step_s, turn):
        steps = max(1, math.ceil(job.block_s / step_s))
        for _ in range(job.blocks):
            rng.shuffle(order)
            for name in order:
                times_s[name].append(turn(name, steps))
    return {name: tuple(times_s[name]) for name in job.sides}


@contextmanager
def _side_by_side(job: LockstepJob) -> Iterator[tuple[float, Turn]]:
    """Every side stays; the step time of the one that was ready first."""
    with ExitStack() as stack:
        forks = {name: stack.enter_context(_forked(job, name)) for name in job.sides}
        ready_s = [fork.hear() for fork in forks.values()]
        yield ready_s[0][0], lambda name, steps: forks[name].take(steps)


@contextmanager
def _one_at_a_time(job: LockstepJob) -> Iterator[tuple[float, Turn]]:
    """Each turn has a process of its own, that is gone before the next begins."""

    def turn(name: SideName, steps: int) -> Block:
        with _forked(job, name) as fork:
            fork.hear()
            return fork.take(steps)

    with _forked(job, next(iter(job.sides))) as fork:
        (step_s,) = fork.hear()
    yield step_s, turn


@dataclass(frozen=True)
class _Fork:
    """A side's process and the coordinator's end of the pipe to it."""

    name: SideName
    pid: int
    pipe: Connection
    deadline_s: float

    def take(self, steps: int) -> Block:
        with suppress(BrokenPipeError):  # it ended; why, `hear` finds out
            self.pipe.send_bytes(json.dumps({"steps": steps}).encode())
        return self.hear()

    def hear(self) -> Block:
        """The seconds of the steps that the side tells of. Raises SideError."""
        if not self.pipe.poll(max(0.0, self.deadline_s - time.monotonic())):
            raise SideError(self.name, Outcome.TIME_OUT, "no answer in time")
        try:
            told = json.loads(self.pipe.recv_bytes())
        except (EOFError, ConnectionResetError):
            raise SideError(self.name, Outcome.CRASHED, self._how_it_ended()) from None
        if "outcome" in told:
            raise SideError(self.name, Outcome(told["outcome"]), told["reason"])
        return tuple(map(float, told["steps_s"]))

    def _how_it_ended(self) -> str:
        how = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        assert how is not None
        returncode = how.si_status if how.si_code == os.CLD_EXITED else -how.si_status
        return ending(Exit(started_at="", duration_s=0.0, returncode=returncode))


@contextmanager
def _forked(job: LockstepJob, name: SideName) -> Iterator[_Fork]:
    """A side in a process of its own, which is gone at the end of the block."""
    ours, theirs = Pipe()
    coordinator = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        run_and_exit(lambda: serve(job, job.sides[name], theirs, coordinator))
    theirs.close()
    try:
        yield _Fork(name, pid, ours, time.monotonic() + job.timeout_s)
    finally:
        ours.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dpbench.run.child.lockstep", description=__doc__)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--record-fd", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
