"""Settings of all tests."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec

import pytest

from tests import sampling
from tests.two_machines import Machine, NoNamespacesError, two_machines
from tests.zygote import Zygote


@pytest.fixture
def machines() -> Iterator[tuple[Machine, Machine]]:
    """Two machines on one. Skip where this process may not make network namespaces."""
    try:
        with two_machines(f"dpt{os.getpid()}") as pair:
            yield pair
    except NoNamespacesError as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote | None]:
    """None if all children are to start anew, or on a machine with a GPU."""
    if sampling.runs_everything() or os.path.exists("/dev/nvidiactl"):
        yield None
    else:
        with closing(Zygote()) as started:
            yield started


def pytest_configure() -> None:
    # A shell starts background commands with SIGINT ignored. Here and in children, Ctrl-C must interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ[sampling.SEED] = sampling.seed()  # for xdist's workers and for children
    if find_spec("hypothesis"):  # the tests on a GPU run without it
        _remove_time_limits()


def pytest_report_header() -> str:
    return sampling.header()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked ``exhaustive``, unless this run leaves nothing out."""
    if sampling.runs_everything() or "exhaustive" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("exhaustive")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]


def _remove_time_limits() -> None:
    """Remove hypothesis's time limits, which fail on a busy machine."""
    from hypothesis import HealthCheck, settings

    settings.register_profile("patient", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")
