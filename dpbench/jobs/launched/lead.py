"""Rank 0 leads and the others follow: both ends of their messages, which are JSON objects over TCP."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from dpbench.cases.spec import Spec
from dpbench.engine.interpret import interpret
from dpbench.engine.launch import Exit
from dpbench.engine.messages import Job, LaunchedRank
from dpbench.errors import ExitCode, ReportedError, WrongInputError
from dpbench.jobs.launched.agreement import RankFacts, disagreement, facts_of_this_rank
from dpbench.jobs.launched.world import WITHOUT_LAUNCHER, World
from dpbench.jobs.round import RoundProcesses
from dpbench.records.record import Outcome

PATIENCE_S = 60.0
"""For all others to connect."""
SILENCE_S = PATIENCE_S + 10.0
"""A rank that cannot reach rank 0 ends after this: some launchers then end all ranks, so rank 0 must report first."""
_HELLO_S = 5.0
"""Another program at the port says nothing."""
_FAREWELL_S = 10.0
_GRACE_S = 30.0
"""The wait for reports once rank 0's child has ended well, and after all others were stopped."""
_MOST_BYTES = 64 << 20
_PAUSE_S = 0.1
_WHOLE_S = 5
"""The rest of a message must follow within this time, which other programs do not keep."""


@contextmanager
def listening(world: World) -> Iterator["Followers"]:
    """At the block's end the other ranks get the exit code of its error. Raises WrongInputError."""
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
class Followers:
    """`refused` are the connections of ranks that do not belong here."""

    world: World
    listener: socket.socket
    connections: dict[int, Connection] = field(default_factory=dict)
    refused: list[Connection] = field(default_factory=list)
    facts: dict[int, RankFacts] = field(default_factory=dict)
    lost: str | None = None
    rounds: RoundProcesses = field(default_factory=RoundProcesses)

    def agree(self, own_facts: RankFacts) -> None:
        """Wait for all ranks; raise WrongInputError."""
        self.facts[0] = own_facts
        for connection, hello in self._accept_all(PATIENCE_S):
            try:
                facts = RankFacts.model_validate(hello)
                line = disagreement([*self.facts.values(), facts])
            except ValidationError:
                line = "a rank has another version of dpbench; allowed: the same on all ranks"
            if line is not None:
                self.refused.append(connection)
                raise WrongInputError(line)
            self.connections[facts.rank], self.facts[facts.rank] = connection, facts
        missing = sorted(set(range(1, self.world.size)) - set(self.connections))
        if missing:
            raise WrongInputError(
                f"rank {missing[0]} did not come within {PATIENCE_S:g} s; allowed: on every rank the MASTER_ADDR and "
                f"MASTER_PORT that lead to rank 0, here {self.world.address}:{self.world.port - 1}; {WITHOUT_LAUNCHER}"
            )

    def _accept_all(self, patience_s: float) -> Iterator[tuple[Connection, Any]]:
        deadline_s = time.monotonic() + patience_s
        while len(self.connections) + len(self.refused) < self.world.size - 1:
            self.listener.settimeout(max(deadline_s - time.monotonic(), 0.001))
            try:
                connected, _ = self.listener.accept()
            except OSError:
                return
            connection = connection_of(connected)
            hello = receive(connection, _HELLO_S)
            if hello is not None and "hello" in hello:
                yield connection, hello["hello"]

    def end_round(self) -> None:
        """The other machines' processes end with the sweep or the next round."""
        self.rounds.end_round()

    def launch(self, job: Job, timeout_s: float) -> Exit:
        """The record is rank 0's, with the outcome and reason of the first rank that failed.

        Raises ReportedError if a rank was lost in an earlier case.
        """
        if self.lost is not None:
            raise ReportedError(f"{self.lost}; records so far are kept")
        if not job.case.variant.is_per_rank:
            return self.rounds.launch(job, timeout_s)
        port = _free_port()
        for connection in self.connections.values():
            send(connection, {"job": job.model_dump(mode="json"), "port": port, "timeout_s": timeout_s})
        reports, record = _Reports(self), None
        try:
            own_rank = LaunchedRank(rank=0, address=self.world.address, port=port)
            end = self.rounds.launch(job, timeout_s, own_rank, reports.stop_fd)
            record = interpret(end, job)
            if record.outcome is not Outcome.OK and not end.is_stopped:
                reports.fail(0, record.outcome, str(record.reason))
        finally:
            reports.close(is_ok=record is not None and record.outcome is Outcome.OK)
        if record.outcome is Outcome.OK or reports.first_failure is None:
            return end
        rank, outcome, reason = reports.first_failure
        failed = record.model_copy(update={"outcome": outcome, "reason": f"{self.facts[rank].name}: {reason}"})
        return replace(end, record=failed.model_dump_json(by_alias=True).encode())

    def end(self, code: ExitCode) -> None:
        """Ranks that have not come yet are still starting."""
        for connection, _ in self._accept_all(_FAREWELL_S):
            self.refused.append(connection)
        for connection in (*self.connections.values(), *self.refused):
            send(connection, {"end": int(code)})
            connection.close()


class _Reports:
    """The first failure of any rank stops all children."""

    def __init__(self, followers: Followers) -> None:
        self._followers = followers
        self.first_failure: tuple[int, Outcome, str] | None = None
        self.stop_fd, self._stop = os.pipe()
        self._lock, self._is_stopped = threading.RLock(), False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def fail(self, rank: int, outcome: Outcome, reason: str) -> None:
        with self._lock:
            self.first_failure = self.first_failure or (rank, outcome, reason)
            self._stop_all()

    def close(self, *, is_ok: bool) -> None:
        if is_ok:
            self._thread.join(_GRACE_S)
        self._stop_all()  # a Ctrl-C at rank 0 stops the others too
        self._thread.join(_GRACE_S)
        if self._thread.is_alive():
            self._followers.lost = self._followers.lost or "a rank does not answer"
            return  # its thread still has the pipe
        os.close(self.stop_fd)
        os.close(self._stop)

    def _read(self) -> None:
        waiting = {connection: rank for rank, connection in self._followers.connections.items()}
        while waiting:
            for connection in wait(list(waiting)):
                assert isinstance(connection, Connection)
                rank, message = waiting.pop(connection), receive(connection)
                if message is None:
                    gone = "its dpbench is gone"
                    self._followers.lost = f"{self._followers.facts[rank].name}: {gone}"
                    self.fail(rank, Outcome.CRASHED, gone)
                elif not message["is_stopped"] and message["outcome"] != Outcome.OK:
                    self.fail(rank, Outcome(message["outcome"]), str(message["reason"]))

    def _stop_all(self) -> None:
        with self._lock:
            if not self._is_stopped:
                self._is_stopped = True
                os.write(self._stop, b"x")
                for connection in self._followers.connections.values():
                    send(connection, {"stop": True})


def _free_port() -> int:
    with socket.create_server(("", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def follow(world: World, make_spec: Callable[[], Spec]) -> ExitCode:
    """Return rank 0's exit code, FAILED if it is gone. Raise WrongInputError if it cannot be reached at first."""
    facts = _facts(world, make_spec)
    try:
        connection = connect(world.address, world.port, SILENCE_S)
    except OSError:
        place = f"rank 0 at {world.address}:{world.port - 1}"
        line = f"rank {world.rank}: {place} did not answer within {SILENCE_S:g} s; allowed: start it too"
        raise WrongInputError(f"{line}; {WITHOUT_LAUNCHER}") from None
    send(connection, {"hello": facts.model_dump()})
    rounds = RoundProcesses()
    try:
        while (message := receive(connection)) is not None:
            if "end" in message:
                return ExitCode(message["end"])
            if "job" in message:
                send(connection, _measured(connection, rounds, world, message))
    finally:
        rounds.end_round()
    return ExitCode.FAILED


def _facts(world: World, make_spec: Callable[[], Spec]) -> RankFacts:
    try:
        return facts_of_this_rank(world, make_spec())
    except WrongInputError as error:
        return facts_of_this_rank(world, None, str(error))


def _measured(
    connection: Connection, rounds: RoundProcesses, world: World, message: dict[str, object]
) -> dict[str, object]:
    """A message meanwhile, or the loss of rank 0's parent, stops the child."""
    job = Job.model_validate(message["job"])
    place = LaunchedRank(rank=world.rank, address=world.address, port=int(str(message["port"])))
    end = rounds.launch(job, float(str(message["timeout_s"])), place, connection.fileno())
    record = interpret(end, job)
    return {"outcome": str(record.outcome), "reason": record.reason, "is_stopped": end.is_stopped}


def connection_of(connected: socket.socket) -> Connection:
    connected.settimeout(None)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _WHOLE_S, 0))
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(connected.detach())


def send(connection: Connection, message: dict[str, Any]) -> None:
    """A lost connection is ignored."""
    with suppress(OSError):
        connection.send_bytes(to_json(message))


def receive(connection: Connection, within_s: float | None = None) -> dict[str, Any] | None:
    """None if the connection is lost, the bytes are no message, or the time is up."""
    try:
        message = from_json(connection.recv_bytes(_MOST_BYTES)) if connection.poll(within_s) else None
    except (OSError, EOFError, ValueError):
        return None
    return message if isinstance(message, dict) else None


def connect(address: str, port: int, patience_s: float) -> Connection:
    """Rank 0 may not listen yet; raises OSError after `patience_s`."""
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            return connection_of(socket.create_connection((address, port), timeout=patience_s))
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_PAUSE_S)
