"""What ranks must have in common, and the messages in which they say it."""

import socket
import struct

import pytest

from dpbench.jobs.launched.agreement import RankFacts, disagreement
from dpbench.jobs.launched.lead import connection_of, receive, send


def facts(number, **changes):
    usual = {
        "world": "4 ranks, 2 on each machine",
        "dpbench": "0.1.0",
        "commit": "abc",
        "torch": "2.13.0",
        "python": "3.11.7",
        "spec": "{}",
    }
    return RankFacts.model_validate({"host": f"node{number // 2}", **usual, "rank": number, **changes})


def test_equal_ranks_agree_whatever_their_machines():
    assert disagreement([facts(0), facts(1), facts(2)]) is None


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"torch": "2.12.0"},
            "rank 2 on node1: torch is '2.12.0' and '2.13.0' on rank 0 on node0; allowed: the same on",
        ),
        (
            {"world": "6 ranks, 2 on each machine"},
            "rank 2 on node1: world is '6 ranks, 2 on each machine' and '4 ranks, 2 on each machine' on rank 0",
        ),
        ({"rank": 1}, "rank 1 on node1: is there twice, also on node0; allowed: each rank once"),
        ({"torch": None}, "rank 2 on node1: torch is None and '2.13.0' on rank 0 on node0"),
        ({"commit": "abc with changes"}, "rank 2 on node1: commit is 'abc with changes' and 'abc' on rank 0 on node0"),
        ({"dpbench": "0.2.0"}, "rank 2 on node1: dpbench is '0.2.0' and '0.1.0' on rank 0"),
        ({"python": "3.12.1"}, "rank 2 on node1: python is '3.12.1' and '3.11.7' on rank 0"),
        ({"spec": '{"rounds":3}'}, "rank 2 on node1: spec is another than that of rank 0 on node0; allowed: the same"),
        ({"spec": None, "error": "my.toml: batch: 0"}, "rank 2 on node1: my.toml: batch: 0"),
        ({"host": "a\x1b]0;b\x07", "spec": None, "error": "\x1b[31m\nred"}, "rank 2 on a ]0;b: [31m red"),
    ],
)
def test_the_first_rank_that_differs_is_named_with_its_machine(changes, line):
    message = disagreement([facts(0), facts(1), facts(2, **changes), facts(3, torch="1.0")])
    assert message.startswith(line)
    assert "\n" not in message


@pytest.fixture
def wires():
    one, other = socket.create_server(("127.0.0.1", 0)), socket.socket()
    other.connect(one.getsockname())
    accepted, _ = one.accept()
    here, there = connection_of(accepted), connection_of(other.dup())
    yield here, there, other
    for connection in (here, there, other, one):
        connection.close()


def test_messages_arrive_whole_and_in_order(wires):
    here, there, _ = wires
    messages = [{"a": "x" * 100_000}, {}, {"b": [1, None, "\u00fc"]}]
    for message in messages:
        send(here, message)
    assert [receive(there) for _ in messages] == messages


@pytest.mark.parametrize(
    "data", [b"", b"\0\0", struct.pack("!I", 5) + b"{}", struct.pack("!I", 2) + b"[]", struct.pack("!I", 2**31)]
)
def test_a_lost_connection_and_bytes_that_are_no_message_are_none(wires, data):
    here, there, raw = wires
    raw.sendall(data)
    there.close()
    raw.close()
    assert receive(here) is None
    send(here, {"ignored": True})
