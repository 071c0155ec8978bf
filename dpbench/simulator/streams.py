"""Which operation happens before which: the vector clocks of streams and of the host. Pure, no torch.

A stream runs its operations one after the other; each has a *tick*, a number that grows. A clock maps a stream to the
last tick of it that is known to be over::

    stream 1:  a(1) ── b(3) ──record──┐                 the event holds {1: 3}
                                      v
    stream 2:  c(2) ───────────────  wait ── d(4)       the clock of d is {2: 4, 1: 3}: b happens before d, c does too

The host is one more party: what it has waited for is over for everything it enqueues later, on any stream and from
any thread (threads of one process are taken to be ordered as they ran).
"""

VectorClock = dict[int, int]


class StreamOrder:
    """The clocks of all streams. Streams are small integers; an unknown one is at its beginning.

    `waits` grows with each wait that told a stream, or the host, something new.
    """

    def __init__(self) -> None:
        self._clocks: dict[int, VectorClock] = {}
        self._host: VectorClock = {}
        self._host_version = 0
        self._host_seen: dict[int, int] = {}
        self.waits = 0

    def launch(self, stream: int, tick: int) -> None:
        """Enqueue the stream's next operation. Its tick is larger than all before in the stream."""
        self._clock(stream)[stream] = tick

    def now(self, stream: int) -> VectorClock:
        """The clock of an event recorded on `stream` now."""
        return dict(self._clock(stream))

    def wait(self, stream: int, clock: VectorClock) -> None:
        """All later operations of `stream` happen after everything in `clock`."""
        if _join(self._clock(stream), clock):
            self.waits += 1

    def host_wait(self, clock: VectorClock) -> None:
        """The host has waited for everything in `clock`."""
        if _join(self._host, clock):
            self._host_version += 1
            self.waits += 1

    def precedes(self, stream: int, tick: int, later: int) -> bool:
        """Whether operation `tick` of `stream` is over when the next operation of `later` runs."""
        return stream == later or self._clock(later).get(stream, 0) >= tick

    def is_over(self, clock: VectorClock, later: int) -> bool:
        """Whether everything in `clock` is over when the next operation of `later` runs."""
        return not self.news(clock, later)

    def news(self, clock: VectorClock, later: int) -> VectorClock:
        """What of `clock` may not be over when the next operation of `later` runs."""
        return _news(self._clock(later), clock)

    def host_news(self, clock: VectorClock) -> VectorClock:
        """What of `clock` the host has not waited for."""
        return _news(self._host, clock)

    def _clock(self, stream: int) -> VectorClock:
        clock = self._clocks.setdefault(stream, {})
        if self._host_seen.get(stream, 0) != self._host_version:
            _join(clock, self._host)
            self._host_seen[stream] = self._host_version
        return clock


def _news(known: VectorClock, clock: VectorClock) -> VectorClock:
    return {stream: tick for stream, tick in clock.items() if known.get(stream, 0) < tick}


def _join(clock: VectorClock, other: VectorClock) -> bool:
    changed = False
    for stream, tick in other.items():
        if clock.get(stream, 0) < tick:
            clock[stream] = tick
            changed = True
    return changed
