"""The process of the command line: `dpbench`, or python -m dpbench.

It imports the commands only after Ctrl-C is safe, so that an interrupt meanwhile is one line too.
"""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line. One Ctrl-C ends it in order; any further one is ignored, so that nothing is left behind."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt_once)
    try:
        from dpbench import cli
    except KeyboardInterrupt:
        print("dpbench: interrupted; nothing was started", file=sys.stderr)  # noqa: T201
        _leave()
    try:
        cli.main()
    except SystemExit as ended:
        if ended.code == _INTERRUPTED:
            _leave()
        raise


def _interrupt_once(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # no function: Python sets those back to the default before it exits
    raise KeyboardInterrupt


def _leave() -> NoReturn:
    """End with the exit code. If Ctrl-C came inside `exec` of text, a normal exit would be a death by SIGINT."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or None
            stream.flush()
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
