"""Which record a wait in a CUDA graph is for, tested once for each device.

CUDA's documents do not say what a launched graph waits for if the event is recorded again before the wait runs. The
wrapper needs the record before the launch: the next step's record comes behind this step, so a wait for it would never
end. The test lets a graph wait behind a short sleep, and records its event again behind a long one::

    first     sleep ──> launch: wait for the event ──> done
    second    sleep sleep sleep sleep sleep sleep sleep sleep ──> the event, recorded again
"""

from functools import cache

import torch

from dpbench.parallel.capture import CapturePlace

SHORT_CYCLES = 20_000_000  # 10 ms at 2 GHz
LONG_CYCLES = 80_000_000  # 40 ms at 2 GHz
TRIES = 3


@cache
def waits_are_for_earlier_records(device: torch.device) -> bool:
    """A try counts only if the short sleep goes on when the event has been recorded again.

    Otherwise the graph may have waited before.
    """
    place, second = CapturePlace(device), torch.cuda.Stream(device)
    first = place.stream
    event, done = torch.cuda.Event(external=True), torch.cuda.Event()
    event.record(first)  # torch ignores a wait for an event that was never recorded
    with place.capture() as graph:
        event.wait(first)
    for _ in range(TRIES):
        with torch.cuda.stream(first):
            torch.cuda._sleep(SHORT_CYCLES)
            graph.replay()
            done.record(first)
        with torch.cuda.stream(second):
            torch.cuda._sleep(LONG_CYCLES)
            event.record(second)
        counts = not done.query()
        done.synchronize()
        is_earlier = not event.query()
        second.synchronize()
        if counts and is_earlier:
            return True
    return False
