"""Fixtures of the benchmarks, and the table of their results at the end of a run.

pytest benchmarks/pytest_suite                    # two minutes: the small settings, fewer rounds
pytest benchmarks/pytest_suite --sizes whole      # half an hour: all settings
"""

import platform
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from benchmarks.pytest_suite.interleave import PairedRatio, interleave, paired_ratio
from benchmarks.pytest_suite.settings import Setting
from dpbench.cases.case import Case
from dpbench.cases.host import cpu_model, usable_cores
from dpbench.cases.names import format_devices
from dpbench.cases.variants import VariantId, VariantName
from dpbench.jobs.probe import ask_machine
from dpbench.measure.clock import make_clock
from dpbench.measure.sample import settle
from dpbench.measure.session import open_session
from dpbench.variants.registry import variant_of

_ROWS = pytest.StashKey[list[str]]()
_SHARES = {"smallest": 0.02, "short": 0.2, "whole": 1.0}
"""The share of the rounds that each choice of `--sizes` takes. All but "whole" leave out what is marked `whole`."""


def pytest_addoption(parser):
    parser.addoption("--sizes", choices=list(_SHARES), default="short", help="settings and rounds (default: short)")


def pytest_configure(config):
    config.addinivalue_line("markers", "whole: runs with --sizes whole alone")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--sizes") == "whole":
        return
    left_out = [item for item in items if item.get_closest_marker("whole")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def share(request):
    """The share of a number of rounds that `--sizes` takes, 5 at least."""
    part = _SHARES[request.config.getoption("--sizes")]
    return lambda rounds: max(5, round(part * rounds))


@pytest.fixture
def print_row(request):
    """Add a line to the table at the end."""
    return request.config.stash.setdefault(_ROWS, []).append


@pytest.fixture(scope="session")
def machine():
    """What a child finds on this machine."""
    return ask_machine()


@pytest.fixture
def session_of():
    """Until the test ends, the lanes divide the case's intra-op threads."""
    before = torch.get_num_threads()

    def make(case: Case):
        torch.set_num_threads(max(1, case.threads // len(case.devices)))
        return open_session(case)

    yield make
    torch.set_num_threads(before)


@pytest.fixture
def one_thread():
    """Until the test ends."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def measure_ratios(print_row, share):
    """From a Setting and pairs (variant, reference) to their PairedRatios, with a line for each pair in the table."""

    def measure(setting: Setting, pairs: list[tuple[VariantName, VariantName]]) -> list[PairedRatio]:
        setting = replace(setting, rounds=share(setting.rounds))
        before = torch.get_num_threads()
        torch.set_num_threads(setting.threads_per_lane)
        try:
            times_s = _times(setting, list(dict.fromkeys(name for pair in pairs for name in pair)))
        finally:
            torch.set_num_threads(before)
        ratios = [paired_ratio(times_s[variant], times_s[reference]) for variant, reference in pairs]
        where = (
            f"{setting.workload}, batch {setting.batch}, {format_devices(setting.devices)}, "
            f"{setting.threads_per_lane} intra-op threads"
        )
        for (variant, reference), ratio in zip(pairs, ratios, strict=True):
            print_row(
                f"{f'{variant} / {reference}':31} {ratio.value:7.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
                f"  {where}, {ratio.rounds} rounds"
            )
        return ratios

    return measure


def _times(setting: Setting, variants: list[VariantName]) -> dict[str, list[float]]:
    case = Case(
        variant=variants[0],
        workload=setting.workload,
        batch=setting.batch,
        devices=list(setting.devices),
        threads=usable_cores(),
    )
    session = open_session(case)
    devices = list(session.placement.devices)
    # All schemes use one base, because the address of its weights changes a step by several percent.
    schemes = {name: variant_of(VariantId(name)).wrap(session.base, devices) for name in variants[1:]}
    schemes[variants[0]] = session.scheme

    def step_of(name: VariantName) -> Callable[[], object]:
        def step() -> object:
            session.scheme = schemes[name]
            return session.step()

        return step

    steps = {name: step_of(name) for name in variants}
    for name, scheme in schemes.items():
        settle(steps[name], partial(variant_of(VariantId(name)).trials_left, scheme))
    return interleave(steps, make_clock(devices), setting.rounds, warmup_rounds=max(10, setting.rounds // 5), seed=0)


def pytest_terminal_summary(terminalreporter, config):
    rows = config.stash.get(_ROWS, [])
    if not rows:
        return
    terminalreporter.section("measured in this run; ratios of step times: median over rounds [95 % interval]")
    terminalreporter.write_line(
        f"{cpu_model()}, {usable_cores()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )
    for row in rows:
        terminalreporter.write_line(row)
