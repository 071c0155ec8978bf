"""Run a step of `make gpu` within its time."""

import ctypes
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from benchmarks.instruments.gpu_steps import Step

ROOT = Path(__file__).resolve().parents[2]
GRACE_S = 10.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)
_TAIL_LINES = 40


@dataclass(frozen=True)
class End:
    """`is_cut` is whether its time was up before. `tail` are its last lines."""

    exit_code: int
    is_cut: bool
    seconds: float
    tail: tuple[str, ...]


def run(step: Step, environment: Mapping[str, str], limit_s: float, say: Callable[[str], object]) -> End:
    """Pass on each line that the step prints. Interrupt it at the limit, and kill it `GRACE_S` later."""
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    begin_s = time.monotonic()
    with subprocess.Popen(
        step.command,
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
        ends = {limit_s: signal.SIGINT, limit_s + GRACE_S: signal.SIGKILL}
        timers = [Timer(after_s, _end, (process, how)) for after_s, how in ends.items()]
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
    seconds = time.monotonic() - begin_s
    return End(code, seconds >= limit_s, seconds, tuple(tail))


def _prepare() -> None:
    """Let SIGINT end this process, and let the kernel kill it when its parent dies (prctl(2)).

    A shell starts background commands with SIGINT ignored, and their children inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process: "subprocess.Popen[str]", how: signal.Signals) -> None:
    """Signal the process and its children, if they still run."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, how)
