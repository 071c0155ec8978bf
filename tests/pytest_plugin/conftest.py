"""pytest inside pytest: a folder with one benchmark, run several times."""

import sys

import pytest

from tests.pytest_plugin.suite import FAKE, SUITE


def forget_the_suite(_):
    """Drop the suite's own modules, which the next run imports anew. torch stays: a process can load it only once."""
    for name in ("conftest", "fake", "test_a", "test_suite", "test_the_last"):
        sys.modules.pop(name, None)


@pytest.fixture
def run(pytester, monkeypatch):
    """Call pytest in a folder with one benchmark of 2 ms a step; the call returns the result. Baselines stay."""
    pytester.syspathinsert()
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # under xdist pytest-benchmark measures nothing
    monkeypatch.setattr("sys.dont_write_bytecode", True)  # a file that is rewritten within a second would be stale
    monkeypatch.setattr("pytest_benchmark.plugin.get_cpu_info", dict)  # takes a second each time
    monkeypatch.setattr("_pytest.pytester.SysModulesSnapshot.restore", forget_the_suite)

    def run(*words, step_s=0.002, name="test_step", threshold='median="5%"', suite=SUITE):
        pytester.makepyfile(fake=FAKE.format(step_s=step_s), test_suite=suite.format(name=name, threshold=threshold))
        plugins = ("-p", "pytest_benchmark.plugin", "-p", "dpbench.pytest_plugin")
        return pytester.runpytest_inprocess(*plugins, "--benchmark-timer=fake.timer", *words)

    return run


@pytest.fixture(scope="session")
def baseline():
    """What `saved` has made: a file's content by its path in the folder."""
    return {}


@pytest.fixture
def saved(pytester, run, baseline):
    """Return the path of a saved baseline. One run makes it for all tests."""
    if not baseline:
        assert run("--benchmark-save=before").ret == 0
        (made,) = pytester.path.glob(".benchmarks/*/0001_before.json")
        baseline[made.relative_to(pytester.path)] = made.read_bytes()
    ((name, content),) = baseline.items()
    path = pytester.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
