"""Messages between the parents: JSON objects over TCP."""

import socket
import struct
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from pydantic_core import from_json, to_json

_MOST_BYTES = 64 << 20
_PAUSE_S = 0.1
_WHOLE_S = 5
"""The rest of a message must follow within this time, which other programs do not keep."""


def connection_of(connected: socket.socket) -> Connection:
    """The connection owns the socket from here on."""
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
    """The next message; None if the connection is lost, the bytes are no message, or the time is up."""
    try:
        found = from_json(connection.recv_bytes(_MOST_BYTES)) if connection.poll(within_s) else None
    except (OSError, EOFError, ValueError):
        return None
    return found if isinstance(found, dict) else None


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
