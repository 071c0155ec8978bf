"""Rank 0 and the ranks that come, do not come, or are no ranks. In one process, with real sockets."""

import socket
import threading
from dataclasses import replace

import pytest

from dpbench.cases.spec import Spec
from dpbench.errors import ExitCode, ReportedError, WrongInputError
from dpbench.jobs.launched import lead, on_all_ranks
from dpbench.jobs.launched.agreement import facts_of_this_rank
from dpbench.jobs.launched.lead import connect, listening, receive, send
from dpbench.jobs.launched.world import World
from tests.jobs.launched.test_on_all_ranks import free_port

SPEC = Spec()


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(lead, "PATIENCE_S", 1.0)
    monkeypatch.setattr(lead, "SILENCE_S", 1.5)
    monkeypatch.setattr(lead, "_FAREWELL_S", 0.2)
    monkeypatch.setattr(lead, "_HELLO_S", 0.2)
    return World(0, 2, 0, 1, "127.0.0.1", free_port() + 1)


def rank_1(world, exit_codes):
    """Follow as rank 1 on a thread. Its exit code goes to `exit_codes`."""
    other = World(1, 2, 0, 1, world.address, world.port)
    thread = threading.Thread(target=lambda: exit_codes.append(lead.follow(other, lambda: SPEC)))
    thread.start()
    return thread


def test_a_rank_that_does_not_come_is_one_line_with_the_variables(world):
    with (
        pytest.raises(WrongInputError, match="rank 1 did not come within 1 s; allowed: on every rank") as caught,
        listening(world) as followers,
    ):
        followers.agree(facts_of_this_rank(world, SPEC))
    assert caught.value.exit_code is ExitCode.WRONG_INPUT
    assert f"here 127.0.0.1:{world.port - 1}" in str(caught.value)


def test_a_rank_that_cannot_reach_rank_0_ends_with_wrong_input(world):
    other = World(1, 2, 0, 1, world.address, world.port)
    with pytest.raises(WrongInputError, match=r"^rank 1: rank 0 at .* did not answer within 1\.5 s; .* unset its var"):
        lead.follow(other, lambda: SPEC)


def test_an_unknown_name_is_one_line_at_once(world):
    elsewhere = replace(world, address="no host")
    with (
        pytest.raises(WrongInputError, match=r"MASTER_ADDR: 'no host' has no address: .*; allowed: the address of"),
        listening(elsewhere),
    ):
        pytest.fail("it listens")


def test_another_program_at_the_port_does_not_stop_the_ranks(world):
    codes = []
    with (
        listening(world) as followers,
        socket.create_connection((world.address, world.port)),
        socket.create_connection((world.address, world.port)) as talker,
    ):
        talker.sendall(b"GET / HTTP/1.1\r\n\r\n")
        thread = rank_1(world, codes)
        followers.agree(facts_of_this_rank(world, SPEC))
    thread.join()
    assert codes == [ExitCode.OK]


def test_facts_of_another_dpbench_are_refused_and_get_code_2(world):
    stranger = []

    def say():
        connection = connect(world.address, world.port, 1.0)
        send(connection, {"hello": {"rank": 1, "version": "0.0.1"}})
        stranger.append(receive(connection))

    thread = threading.Timer(0.1, say)
    thread.start()
    with (
        pytest.raises(WrongInputError, match="a rank has another version of dpbench"),
        listening(world) as followers,
    ):
        followers.agree(facts_of_this_rank(world, SPEC))
    thread.join()
    assert stranger == [{"end": 2}]


def test_a_rank_whose_variables_hide_rank_0_is_silent_until_rank_0_has_reported(monkeypatch):
    waited = []
    monkeypatch.setattr(on_all_ranks.time, "sleep", waited.append)
    environment = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_PORT": "1"}
    with pytest.raises(WrongInputError, match="MASTER_ADDR"), on_all_ranks.leading(environment, pytest.fail):
        pass
    assert waited == [lead.SILENCE_S]
    assert waited[0] > lead.PATIENCE_S


def test_a_lost_rank_is_no_wrong_input():
    assert ReportedError.exit_code is ExitCode.FAILED
