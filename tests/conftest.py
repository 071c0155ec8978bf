"""What holds for all tests."""

import signal
from importlib.util import find_spec


def pytest_configure() -> None:
    # Ctrl-C means what it should, here and in children: a shell starts what it runs in the background deaf to it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if find_spec("hypothesis"):  # which the tests for a GPU do without
        _take_time()


def _take_time() -> None:
    """No property fails because the machine is busy: hypothesis has time limits of its own."""
    from hypothesis import HealthCheck, settings

    settings.register_profile("patient", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")
