"""The ranks but rank 0: each runs its child of a case when rank 0 says so, and prints nothing."""

from collections.abc import Callable
from multiprocessing.connection import Connection

from dpbench.cases.spec import Spec
from dpbench.errors import ExitCode, WrongInputError
from dpbench.processes.interpret import interpret
from dpbench.processes.launched.agreement import RankFacts, facts_of_this_rank
from dpbench.processes.launched.wire import connect, receive, send
from dpbench.processes.launched.world import World
from dpbench.processes.messages import Job, LaunchedRank
from dpbench.processes.rounds import RoundProcesses

PATIENCE_S = 60.0
"""Rank 0 waits this long for all others to connect."""
SILENCE_S = PATIENCE_S + 10.0
"""A rank that cannot reach rank 0 ends after this: some launchers then end all ranks, so rank 0 must report first."""


def follow(world: World, make_spec: Callable[[], Spec]) -> ExitCode:
    """Take part until rank 0 ends the sweep; return its exit code, FAILED if it is gone. Return WRONG_INPUT if rank 0
    cannot be reached at first, which reports the missing rank.
    """
    facts = _facts(world, make_spec)
    try:
        connection = connect(world.address, world.port, SILENCE_S)
    except OSError:
        return ExitCode.WRONG_INPUT
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
    """Run this rank's child; return its outcome, with the reason.

    A message meanwhile, or the loss of rank 0's parent, ends the case and stops the child.
    """
    job = Job.model_validate(message["job"])
    place = LaunchedRank(rank=world.rank, address=world.address, port=int(str(message["port"])))
    end = rounds.launch(job, float(str(message["timeout_s"])), place, connection.fileno())
    record = interpret(end, job)
    return {"outcome": str(record.outcome), "reason": record.reason, "is_stopped": end.is_stopped}
