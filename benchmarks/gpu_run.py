"""Run a step of `make gpu` within its time."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from benchmarks.gpu_steps import Step

ROOT = Path(__file__).resolve().parents[1]
GRACE_S = 15.0
_BUDGET = 0.9  # of a step's share: its own start and end are no measurements

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)
_TAIL_LINES = 40


@dataclass(frozen=True)
class Allowance:
    """The time of a step: it is interrupted after `limit_s`, and plans its measurements for `share_s`."""

    limit_s: float
    share_s: float


@dataclass(frozen=True)
class End:
    """How a step's process ended. `is_cut` is whether its time was up before. `tail` are its last lines."""

    exit_code: int
    is_cut: bool
    seconds: float
    tail: tuple[str, ...]


def allowance(needs_s: Sequence[float], left_s: float) -> Allowance:
    """Return the time of the first of the steps with these needs. Pure.

    It may use all that is left but the needs of the later steps. If less is left than all need, every step gets its
    share.
    """
    total_s, later_s = sum(needs_s), sum(needs_s[1:])
    return Allowance(left_s - later_s * min(1.0, left_s / total_s), left_s * needs_s[0] / total_s)


def run(step: Step, environment: Mapping[str, str], allowed: Allowance, say: Callable[[str], object]) -> End:
    """Run a step. Pass on each line that it prints.

    Interrupt it at the limit, and kill it `GRACE_S` later.
    """
    budget = f"{max(1.0, _BUDGET * allowed.share_s):.0f}"
    arguments = [argument.replace("{budget}", budget) for argument in step.arguments]
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    is_cut = False
    begin_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=ROOT,
        env={**environment, **step.environment},
        start_new_session=True,
        preexec_fn=_prepare,  # noqa: PLW1509 - no thread runs yet: the timers start later
    ) as process:

        def cut() -> None:
            nonlocal is_cut
            if process.poll() is None:
                is_cut = True
                _end(process, signal.SIGINT)

        timers = [Timer(allowed.limit_s, cut), Timer(allowed.limit_s + GRACE_S, _end, (process, signal.SIGKILL))]
        for timer in timers:
            timer.start()
        try:
            for line in process.stdout or ():
                tail.append(line.rstrip())
                say(line)
            code = process.wait()
        finally:
            for timer in timers:
                timer.cancel()
            _end(process, signal.SIGKILL)
    return End(code, is_cut, time.monotonic() - begin_s, tuple(tail))


def _prepare() -> None:
    """Let SIGINT end this process, and let the kernel kill it when its parent dies (prctl(2)).

    A shell starts background commands with SIGINT ignored, and their children inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process: "subprocess.Popen[str]", how: signal.Signals) -> None:
    """Send a signal to the process and its children, if they still run."""
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        return
