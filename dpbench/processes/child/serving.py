"""What every side of a gate's round does: it takes blocks of one commit's step on request.

coordinator (lockstep.py)               side
  │ <──── {"steps_s": [0.006]} ───────    ready, after warm-up; or {"outcome": ..., "reason": ...}, and the side ends
  │ ───── {"steps": 0, "way": "", ...} ──>   only for a scheme that chooses by trials: until none are left
  │ <──── {"way": "sequence", ...} ───    its choice; the other sides are asked to choose what base chose
  │ ───── {"steps": 2, "number": 1} ──>
  │ <──── {"steps_s": [0.006, ...]} ──    the block
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from socket import socket

from dpbench.measure.borrowed.lent import BorrowedError
from dpbench.records.record import Outcome

WARMUP_S = 0.2
_REQUEST_BYTES = 64

Step = Callable[[int], float]
"""Takes a step, of a number of calls if borrowed, and returns its seconds."""
Send = Callable[[dict[str, object]], object]


def take_blocks(pipe: socket, step: Step, settle: Callable[[str], str] = str) -> None:
    """Take blocks until the coordinator closes the pipe; `settle` uses up a scheme's trials, for the given way, and
    returns the choice.
    """
    send = sender(pipe)
    try:
        while message := pipe.recv(_REQUEST_BYTES):
            request = json.loads(message)
            way = settle(request.get("way", "")) if not request["steps"] else ""
            send({"steps_s": [step(request["number"]) for _ in range(request["steps"] or 1)], "way": way})
    except Exception as error:
        send(failed(Outcome.CRASHED, error))


def sender(pipe: socket) -> Send:
    return lambda message: pipe.send(json.dumps(message).encode())


def pin(cores: tuple[int, ...]) -> None:
    """Pin all threads, once prepared: on one core the sides would take three times as long to prepare."""
    pinned = set[str]()
    while new := set(os.listdir("/proc/self/task")) - pinned:  # a thread that was not pinned yet may start others
        for thread in new:
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(int(thread), cores)
        pinned |= new


def failed(outcome: Outcome, error: BaseException) -> dict[str, object]:
    line, *_ = str(error).strip().splitlines() or [""]
    reason = line if isinstance(error, BorrowedError) else f"{type(error).__name__}: {line}"
    return {"outcome": outcome, "reason": reason}
