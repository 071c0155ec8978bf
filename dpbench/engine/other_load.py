"""How busy other processes kept the cores, while this one and its children measured."""

import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dpbench.cases.host import parse_cpu_times, usable_cores

LOADED = 0.1
"""Other processes with a larger share of the cores make times longer, and orders less sure."""
BUSY = 0.5
"""Other processes with a larger share of the cores make the wait long."""
TOO_BUSY = 4.0
"""Processes for each core that want to run: with four, gates were still decided; with seven to ten, one round took five
minutes.
"""
_SAMPLES = 20
_BETWEEN_S = 0.05
_WAIT_S = 10.0


@dataclass(frozen=True)
class OtherLoad:
    """`busy_cores` is a mean, the hypervisor's other machines included."""

    busy_cores: float
    cores: int

    @property
    def is_high(self) -> bool:
        return self.busy_cores > LOADED * self.cores

    def warning(self, effect: str = "the order of variants is less sure") -> list[str]:
        """A line for the start of a long command on a busy machine, else none."""
        if self.busy_cores <= BUSY * self.cores:
            return []
        busy = f"other processes keep {self.busy_cores:.1f} of {self.cores} cores busy"
        return [f"{busy}: this takes longer, and {effect}"]


class LoadMeter:
    """All children of this process must have ended before `read`."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._begin_s, self._others_s = time.monotonic(), self._others()

    def read(self, least_s: float = 0.0) -> OtherLoad | None:
        """The load since the begin, `least_s` ago at least; None without /proc/stat."""
        time.sleep(max(0.0, self._begin_s + least_s - time.monotonic()))
        now_s, elapsed_s = self._others(), time.monotonic() - self._begin_s
        if now_s is None or self._others_s is None or elapsed_s <= 0:
            return None
        return OtherLoad(max(0.0, now_s - self._others_s) / elapsed_s, usable_cores())

    def _others(self) -> float | None:
        try:
            times = parse_cpu_times(self._stat.read_text())
        except (OSError, ValueError):
            return None
        own_usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return (times.busy + times.stolen) / os.sysconf("SC_CLK_TCK") - sum(
            use.ru_utime + use.ru_stime for use in own_usages
        )


def wait_for_quiet(limit_s: float, say: Callable[..., object], read: Callable[[], float] | None = None) -> float:
    """Return the processes for each core that want to run, once at most `TOO_BUSY` or after `limit_s`."""
    read, end_s = read or processes_wanting, time.monotonic() + limit_s
    while (wanting := read()) > TOO_BUSY and (left_s := end_s - time.monotonic()) > 0:
        say(f"{wanting:.1f} processes for each core want to run: waiting for at most {TOO_BUSY:g}", left_s)
        time.sleep(min(_WAIT_S, left_s))
    return wanting


def processes_wanting(loads: Path = Path("/proc/loadavg")) -> float:
    """Other processes and threads for each core that want to run, over a second; 0 if unknown."""
    total = 0
    for _ in range(_SAMPLES):
        with suppress(OSError, ValueError, IndexError):
            total += int(loads.read_text().split()[3].partition("/")[0]) - 1  # this process runs, too
        time.sleep(_BETWEEN_S)
    return total / _SAMPLES / usable_cores()
