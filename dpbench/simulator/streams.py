"""Vector clocks: the operations of all streams that have finished before another one runs.

Each operation has a *tick*, a number that grows. A vector clock maps a stream to its last tick that is known to have
finished::

    stream 1:  a(1) ── b(3) ──record──┐                 the event holds {1: 3}
                                      v
    stream 2:  c(2) ───────────────  wait ── d(4)       the clock of d is {2: 4, 1: 3}: b happens before d, c does too

Operations that the host has waited for have finished before everything enqueued later, on any stream.
"""

VectorClock = dict[int, int]


class StreamOrder:
    """`waits` counts the waits that changed a clock."""

    def __init__(self) -> None:
        self._clocks: dict[int, VectorClock] = {}
        self._host: VectorClock = {}
        self._host_version = 0
        self._host_seen: dict[int, int] = {}
        self.launches = 0
        self.waits = 0

    def launch(self, stream: int, tick: int) -> None:
        """`tick` is larger than all earlier ones."""
        self._clock(stream)[stream] = tick
        self.launches += 1

    def now(self, stream: int) -> VectorClock:
        return dict(self._clock(stream))

    def wait(self, stream: int, clock: VectorClock) -> None:
        if _join(self._clock(stream), clock):
            self.waits += 1

    def host_wait(self, clock: VectorClock) -> None:
        if _join(self._host, clock):
            self._host_version += 1
            self.waits += 1

    def precedes(self, stream: int, tick: int, later: int) -> bool:
        """Whether `tick` of `stream` has finished when the next operation of `later` runs."""
        return stream == later or self._clock(later).get(stream, 0) >= tick

    def is_over(self, clock: VectorClock, later: int) -> bool:
        return not self.unfinished(clock, later)

    def unfinished(self, clock: VectorClock, later: int) -> VectorClock:
        """The part of `clock` that may still run when the next operation of `later` runs."""
        return _unfinished(self._clock(later), clock)

    def unfinished_for_host(self, clock: VectorClock) -> VectorClock:
        return _unfinished(self._host, clock)

    def _clock(self, stream: int) -> VectorClock:
        clock = self._clocks.setdefault(stream, {})
        if self._host_seen.get(stream, 0) != self._host_version:
            _join(clock, self._host)
            self._host_seen[stream] = self._host_version
        return clock


def _unfinished(done: VectorClock, clock: VectorClock) -> VectorClock:
    return {stream: tick for stream, tick in clock.items() if done.get(stream, 0) < tick}


def _join(clock: VectorClock, other: VectorClock) -> bool:
    """Return whether a tick of `clock` changed."""
    changed = False
    for stream, tick in other.items():
        if clock.get(stream, 0) < tick:
            clock[stream] = tick
            changed = True
    return changed
