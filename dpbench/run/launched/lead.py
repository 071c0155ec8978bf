"""Rank 0: it accepts the other ranks, holds their facts against its own, and runs each case on all of them."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from dpbench.errors import ExitCode, ReportedError, WrongInputError
from dpbench.results.record import Outcome, Record
from dpbench.run.interpret import interpret
from dpbench.run.launch import Exit
from dpbench.run.launched.agreement import RankFacts, disagreement
from dpbench.run.launched.follow import PATIENCE_S
from dpbench.run.launched.wire import Wire
from dpbench.run.launched.world import World
from dpbench.run.messages import Job, LaunchedRank
from dpbench.run.rounds import RoundProcesses

_HELLO_S = 5.0
"""A rank says who it is at once. Another program that connects to the port says nothing."""
_FAREWELL_S = 10.0
_GRACE_S = 30.0
"""Wait this long for reports once the own child has ended, and again after all others were stopped."""


class LostRankError(ReportedError):
    """A rank's parent is gone or does not answer. Records so far are kept."""


class RanksDisagreeError(WrongInputError):
    """One line that names the rank, its machine and what differs."""


class MissingRankError(WrongInputError):
    """A rank did not come; most often its variables lead elsewhere."""


@contextmanager
def listening(world: World) -> Iterator["Followers"]:
    """Yield the connections to the other ranks. At the end of the block they get an exit code: that of its error."""
    try:
        socket.getaddrinfo(world.address, world.port)
    except OSError as error:
        raise WrongInputError(
            f"MASTER_ADDR: {world.address!r} has no address: {error.strerror}; allowed: the address of rank 0's machine"
        ) from error
    try:
        listener = socket.create_server(("", world.port), backlog=world.size)
    except OSError as error:
        raise WrongInputError(
            f"port {world.port}, next to MASTER_PORT: {error.strerror}; allowed: a free port"
        ) from error
    followers = Followers(world, listener)
    code = ExitCode.FAILED
    try:
        yield followers
        code = ExitCode.OK
    except ReportedError as error:
        code = error.exit_code
        raise
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
        raise
    finally:
        followers.end(code)
        listener.close()


@dataclass
class _Report:
    """What a follower said about its child, and when it arrived."""

    outcome: Outcome
    reason: str
    at_s: float


@dataclass
class Followers:
    """The connections to the other ranks' parents. `refused` are those of ranks that do not belong here."""

    world: World
    listener: socket.socket
    wires: dict[int, Wire] = field(default_factory=dict)
    refused: list[Wire] = field(default_factory=list)
    facts: dict[int, RankFacts] = field(default_factory=dict)
    lost: str | None = None
    rounds: RoundProcesses = field(default_factory=RoundProcesses)

    def agree(self, own: RankFacts) -> None:
        """Wait for all ranks. Raise RanksDisagreeError if one differs, MissingRankError if one does not come."""
        self.facts[0] = own
        for wire, hello in self._accept_all(PATIENCE_S):
            try:
                found = RankFacts.model_validate(hello)
                line = disagreement([*self.facts.values(), found])
            except ValidationError:
                line = "a rank has another version of dpbench; allowed: the same on all ranks"
            if line is not None:
                self.refused.append(wire)
                raise RanksDisagreeError(line)
            self.wires[found.rank], self.facts[found.rank] = wire, found
        missing = sorted(set(range(1, self.world.size)) - set(self.wires))
        if missing:
            raise MissingRankError(
                f"rank {missing[0]} did not come within {PATIENCE_S:g} s; allowed: on every rank the MASTER_ADDR and "
                f"MASTER_PORT that lead to rank 0, here {self.world.address}:{self.world.port - 1}"
            )

    def _accept_all(self, patience_s: float) -> Iterator[tuple[Wire, Any]]:
        """Wait for the ranks that have not come yet. Yield the connection and the facts, as JSON, of each."""
        deadline_s = time.monotonic() + patience_s
        while len(self.wires) + len(self.refused) < self.world.size - 1:
            self.listener.settimeout(max(deadline_s - time.monotonic(), 0.001))
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            wire = Wire(connection)
            hello = wire.receive(_HELLO_S)
            if hello is not None and "hello" in hello:
                yield wire, hello["hello"]

    def end_round(self) -> None:
        """End this machine's process of the round. Those of the others end with the sweep, or with the next round."""
        self.rounds.end_round()

    def launch(self, job: Job, timeout_s: float) -> Exit:
        """Run a child for each rank of the job, or this machine's alone if the job has no ranks.

        The record is rank 0's if its child sent an ok one. Otherwise it is a failed one: the first rank that failed
        gives outcome and reason. Raises LostRankError if a rank was lost in an earlier case.
        """
        if self.lost is not None:
            raise LostRankError(f"{self.lost}; records so far are kept")
        if not job.case.variant.is_per_rank:
            return self.rounds.launch(job, timeout_s)
        port = _free_port()
        with _Round(self) as round_:
            round_.begin({"job": job.model_dump(mode="json"), "port": port, "timeout_s": timeout_s})
            own = LaunchedRank(rank=0, address=self.world.address, port=port)
            end = self.rounds.launch(job, timeout_s, own, round_.stop_fd)
            ended_s = time.monotonic()
            record = interpret(end, job)
            round_.finish(is_ok=record.outcome is Outcome.OK)
        if record.outcome is Outcome.OK:
            return end
        return replace(end, record=_failed(record, ended_s, end.is_stopped, round_.reports, self.facts))

    def end(self, code: ExitCode) -> None:
        """Send the exit code to all ranks. Those that have not come yet are still starting."""
        for wire, _ in self._accept_all(_FAREWELL_S):
            self.refused.append(wire)
        for wire in (*self.wires.values(), *self.refused):
            wire.send({"end": int(code)})
            wire.close()


class _Round:
    """One case on all ranks: a thread for each follower waits for its report. A failed one stops all children."""

    def __init__(self, followers: Followers) -> None:
        self._followers = followers
        self.reports: dict[int, _Report] = {}
        self.stop_fd, self._stop = os.pipe()
        self._is_stopped = threading.Lock()
        self._threads = [
            threading.Thread(target=self._wait, args=(rank, wire), daemon=True)
            for rank, wire in followers.wires.items()
        ]

    def __enter__(self) -> "_Round":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_all()  # a Ctrl-C at rank 0 stops the others too
        for thread in self._threads:
            thread.join(_GRACE_S)
        if any(thread.is_alive() for thread in self._threads):
            self._followers.lost = self._followers.lost or "a rank does not answer"
            return  # its thread still has the pipe
        os.close(self.stop_fd)
        os.close(self._stop)

    def begin(self, job: dict[str, Any]) -> None:
        for wire in self._followers.wires.values():
            wire.send(job)
        for thread in self._threads:
            thread.start()

    def finish(self, *, is_ok: bool) -> None:
        """Wait for the reports; after a failure, stop all children first."""
        if not is_ok:
            self._stop_all()
        deadline_s = time.monotonic() + _GRACE_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _wait(self, rank: int, wire: Wire) -> None:
        message = wire.receive()
        if message is None:
            self._followers.lost = f"{self._followers.facts[rank].name}: its dpbench is gone"
            self.reports[rank] = _Report(Outcome.CRASHED, "its dpbench is gone", time.monotonic())
        elif not message["is_stopped"]:
            outcome = Outcome(message["outcome"])
            self.reports[rank] = _Report(outcome, str(message["reason"]), time.monotonic())
        if rank in self.reports and self.reports[rank].outcome is not Outcome.OK:
            self._stop_all()

    def _stop_all(self) -> None:
        if self._is_stopped.acquire(blocking=False):
            os.write(self._stop, b"x")
            for wire in self._followers.wires.values():
                wire.send({"stop": True})


def _failed(
    own: Record, ended_s: float, is_stopped: bool, reports: dict[int, _Report], facts: dict[int, RankFacts]
) -> bytes:
    """Return the failed record of the case: that of the rank that failed first."""
    failures = {rank: report for rank, report in reports.items() if report.outcome is not Outcome.OK}
    if not is_stopped:
        failures[0] = _Report(own.outcome, str(own.reason), ended_s)
    if not failures:
        return own.model_dump_json(by_alias=True).encode()
    rank = min(failures, key=lambda each: failures[each].at_s)
    update = {"outcome": failures[rank].outcome, "reason": f"{facts[rank].name}: {failures[rank].reason}"}
    return own.model_copy(update=update).model_dump_json(by_alias=True).encode()


def _free_port() -> int:
    """Return a port that is free now. Rank 0's child listens at it."""
    with socket.create_server(("", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
