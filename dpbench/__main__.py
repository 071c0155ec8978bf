"""The process of the command line: `dpbench`, or python -m dpbench.

It imports the commands only after Ctrl-C is safe, so that an interrupt meanwhile is one line too.
"""

import signal
import sys
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line. One Ctrl-C ends it in order; any further one is ignored, so that nothing is left behind."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt_once)
    try:
        from dpbench import cli
    except KeyboardInterrupt:
        print("dpbench: interrupted; nothing was started", file=sys.stderr)  # noqa: T201
        sys.exit(INTERRUPTED)
    cli.main()


def _interrupt_once(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # no function: Python sets those back to the default before it exits
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
