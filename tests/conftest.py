"""What holds for all tests."""

import signal


def pytest_configure() -> None:
    """Ctrl-C means what it should, here and in children: a shell starts what it runs in the background deaf to it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
