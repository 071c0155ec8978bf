"""Messages between the parents: JSON objects over TCP, each after its length in four bytes."""

import socket
import struct
import time
from contextlib import suppress
from typing import Any

from pydantic_core import from_json, to_json

_LENGTH = struct.Struct("!I")
_MOST_BYTES = 64 << 20
_PAUSE_S = 0.1


class Wire:
    """One end of a connection. A lost connection is None from `receive`, and ignored by `send`."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection

    def fileno(self) -> int:
        """Return the descriptor that is readable once a message has arrived or the connection is lost."""
        return self._connection.fileno()

    def send(self, message: dict[str, Any]) -> None:
        text = to_json(message)
        with suppress(OSError):
            self._connection.settimeout(None)
            self._connection.sendall(_LENGTH.pack(len(text)) + text)

    def receive(self, within_s: float | None = None) -> dict[str, Any] | None:
        """Wait for a message. Return None if the connection is lost, the bytes are no message, or the time is up."""
        try:
            self._connection.settimeout(within_s)
            (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
            found = from_json(self._exactly(length)) if length <= _MOST_BYTES else None
        except (OSError, EOFError, ValueError, struct.error):
            return None
        return found if isinstance(found, dict) else None

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._connection.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def close(self) -> None:
        self._connection.close()


def connect(address: str, port: int, patience_s: float) -> Wire:
    """Connect to rank 0, which may not listen yet. Raises OSError after `patience_s`."""
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            return Wire(socket.create_connection((address, port), timeout=patience_s))
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_PAUSE_S)
