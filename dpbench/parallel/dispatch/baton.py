"""The baton of an interleaved run: the lane that holds it runs, all others wait.

A lane passes the baton to the next one in the order of the lanes, and the last lane passes it to the first::

    lane 0   ██──┐     ┌─██──┐     ┌─██ ends
    lane 1       └─██──│     └─██──│     └─██ ...
    lane 2           └─██        └─██

Each lane has a lock that is open while the baton is on its way to it. So a lane that has not started yet keeps its
place in the order. A lane that ends leaves the ring for good.
"""

import threading

_GONE = -1


class Baton:
    """Lets `count` lanes run one at a time, lane 0 first.

    `holder` is the lane that runs. `passes` counts how often the baton has moved. Once `is_dropped`, all lanes run at
    the same time and no lane waits.
    """

    __slots__ = ("_gates", "_next", "holder", "is_dropped", "passes")

    # `_next` has for each lane the one that comes after it, or `_GONE` for a lane that has left.

    def __init__(self, count: int) -> None:
        self._gates = [threading.Lock() for _ in range(count)]
        for gate in self._gates[1:]:
            gate.acquire()
        self._next = [*range(1, count), 0]
        self.holder = 0
        self.passes = 0
        self.is_dropped = False

    @property
    def is_alone(self) -> bool:
        """Whether no other lane waits for the holder."""
        return self._next[self.holder] == self.holder

    def take(self, lane: int) -> None:
        """Wait for the lane's first turn."""
        self._gates[lane].acquire()

    def pass_on(self, lane: int) -> None:
        """Let the other lanes run, and return when the baton is back.

        If the wait is interrupted, the baton is dropped: the lane may go on after it has caught the interrupt.
        """
        if self.is_dropped or self._next[lane] == lane:
            return
        try:
            self._give(self._next[lane])
            self._gates[lane].acquire()
        except BaseException:
            self.drop()
            raise

    def leave(self, lane: int) -> None:
        """Pass the baton on for good; drop it if the lane was interrupted while it waited."""
        if self.holder != lane:
            self.drop()
        if self.is_dropped:
            return
        following = self._next[lane]
        if following != lane:
            self._next[self._next.index(lane)] = following
            self._next[lane] = _GONE
            self._give(following)

    def drop(self) -> None:
        """Let all lanes run at the same time, from now on."""
        self.is_dropped = (
            True  # before the gates open: a lane that has not seen it finds its gate open, whatever it does
        )
        for gate in self._gates:
            _open(gate)

    def _give(self, lane: int) -> None:
        self.holder = lane
        self.passes += 1
        _open(self._gates[lane])


def _open(gate: threading.Lock) -> None:
    try:  # noqa: SIM105 - `suppress` takes six times as long
        gate.release()
    except RuntimeError:
        pass  # `drop` has opened it already
