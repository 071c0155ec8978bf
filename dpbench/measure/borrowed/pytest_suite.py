"""Tests that use the `benchmark` fixture of pytest-benchmark, run by pytest itself."""

import io
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr
from importlib.util import find_spec
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pytest_benchmark.fixture import BenchmarkFixture, PauseInstrumentation

from dpbench.measure.borrowed.lent import SAMPLE_S, BorrowedError, Probe, Sample, SkippedError, Use
from dpbench.measure.undisturbed import stopwatch

_DROPPED = re.compile(
    r"--benchmark-(skip|only|disable)|--benchmark-(json|save)=.*|--benchmark-autosave"
    r"|-n\w+|--(numprocesses|dist|maxprocesses|tx)=.*|-d|-f|--looponfail"
)
_WITH_VALUE = ("-n", "--numprocesses", "--dist", "--maxprocesses", "--tx", "--benchmark-json", "--benchmark-save")
_ASYNC = "it is a coroutine function, and a gate times calls that return their result"


def find_pytest(commit: Path, where: str) -> tuple[dict[str, str | None], list[str]]:
    """Tests by node id with the reason why they cannot be lent, and errors at import."""
    collector = _Plugin(lambda *_: None)
    if (commit / where).exists():
        _run(commit, ["--collect-only", where], collector)
    return collector.collected, [*collector.failures, *collector.deselected]


def lend_pytest(commit: Path, name: str, use: Use, probe: Probe | None = None) -> None:
    """Run a test to its end, and lend the function that it passes to its fixture; raises BorrowedError."""
    borrower, pedantic = _Plugin(use, probe), BenchmarkFixture._raw_pedantic
    with mock.patch.multiple(
        BenchmarkFixture,
        _raw=lambda fixture, function, *args, **kwargs: borrower.lend_call(fixture, function, args, kwargs),
        _raw_pedantic=lambda fixture, *args, **kwargs: borrower.lend_pedantic(pedantic, fixture, *args, **kwargs),
    ):
        code = _run(commit, [f"--basetemp={Path.cwd() / 'pytest'}", name], borrower)
    if borrower.error is not None:
        raise borrower.error
    if borrower.failures:
        raise BorrowedError(f"its test fails: {borrower.failures[0]}" if borrower.is_done else borrower.failures[0])
    if borrower.skipped is not None:
        raise SkippedError(f"the test is skipped: {borrower.skipped}")
    if not borrower.is_done:
        where = f" of {borrower.replaced}, which is not pytest-benchmark's" if borrower.replaced else ""
        raise BorrowedError(f"it passes nothing to its fixture `benchmark`{where}; pytest's exit code is {code}")
    if borrower.passed != {"setup", "call", "teardown"}:
        raise BorrowedError(f"its test does not run to its end; pytest's exit code is {code}")


class _Plugin:
    def __init__(self, use: Use, probe: Probe | None = None) -> None:
        self._use, self._probe = use, probe
        self.collected: dict[str, str | None] = {}
        self.failures: list[str] = []
        self.deselected: list[str] = []
        self.passed: set[str] = set()
        self.skipped: str | None = None
        self.is_done = False
        self.replaced: str | None = None
        self.error: BaseException | None = None

    def pytest_load_initial_conftests(self, args: list[str]) -> None:
        """Drop options of `addopts` that leave benchmarks out, switch them off, or spread tests over processes."""
        words = iter(args[:])
        args[:] = [
            word for word in words if not (_DROPPED.fullmatch(word) or (word in _WITH_VALUE and next(words, "")))
        ]

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        if names := [item.nodeid for item in items if "benchmark" in getattr(item, "fixturenames", ())]:
            more = f" and {len(names) - 1} more" if names[1:] else ""
            self.deselected.append(f"pytest deselects {names[0]}{more}, by -m, -k or --deselect")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if "benchmark" in getattr(item, "fixturenames", ()):
                self.collected[item.nodeid] = _ASYNC if iscoroutinefunction(getattr(item, "obj", None)) else None

    def pytest_runtest_setup(self, item: Any) -> None:
        """Note a fixture of the project that has the name of pytest-benchmark's."""
        *_, fixture = item._fixtureinfo.name2fixturedefs.get("benchmark") or [None]
        module = getattr(getattr(fixture, "func", None), "__module__", "pytest_benchmark")
        self.replaced = None if module.partition(".")[0] == "pytest_benchmark" else module

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            text = getattr(getattr(report.longrepr, "reprcrash", None), "message", None) or str(report.longrepr)
            lines = [line.removeprefix("E ").strip() for line in text.strip().splitlines()]
            self.failures.append(next((line for line in lines[::-1] if "Error" in line), lines[0]))

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.pytest_collectreport(report)
        if report.passed:
            self.passed.add(report.when)
        if report.skipped:
            reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
            self.skipped = str(reason)

    def lend_call(self, fixture: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with self._passed_on(fixture, function) as lent:
            runner, clock = fixture._make_runner(lent, args, kwargs), stopwatch(time.perf_counter)
            fixture._min_time = max(fixture._min_time, SAMPLE_S)

            def take(number: int | None = None) -> Sample:
                if number is None:
                    duration_s, number, _ = fixture._calibrate_timer(runner)
                else:
                    duration_s = runner(range(number), timer=clock)
                return Sample(duration_s / number, number)

            self._use(take, False)
        return _with_stats(fixture, fixture._make_runner(function, args, kwargs))

    def lend_pedantic(
        self, pedantic: Callable[..., Any], fixture: Any, target: Any, *args: Any, iterations: int = 1, **options: Any
    ) -> Any:
        """A sample is one of its rounds. A test with one call of its target has no other call than the sample's."""
        durations_s, results = list[float](), list[Any]()
        is_first = (options.get("rounds", 1), options.get("warmup_rounds", 0), iterations) == (1, 0, 1)
        fixture._timer, fixture.disabled = stopwatch(time.perf_counter), False
        fixture._make_stats = lambda _: mock.Mock(update=durations_s.append)
        options |= {"rounds": 1, "warmup_rounds": 0, "iterations": iterations}
        with self._passed_on(fixture, target) as lent:

            def take(number: int | None = None) -> Sample:  # noqa: ARG001  # the test says how many
                results[:] = [pedantic(fixture, lent, *args, **options)]
                return Sample(durations_s[-1] / iterations, iterations)

            self._use(take, is_first)
        del fixture._make_stats
        if is_first and results:
            fixture._make_stats(iterations).update(durations_s[-1])
            return results[0]
        return pedantic(fixture, target, *args, **options)

    @contextmanager
    def _passed_on(self, fixture: Any, function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
        fixture._disable_gc = False  # the gate judges the mean, which has to see what garbage costs
        fixture._add_stats = lambda _: None  # pytest-benchmark shows and saves nothing
        try:
            if iscoroutinefunction(function):
                raise BorrowedError(_ASYNC)
            with PauseInstrumentation():
                yield function if self._probe is None else self._probe.wrap(function)
        except BaseException as error:
            self.error = error
            raise
        self.is_done = True


def _with_stats(fixture: Any, runner: Callable[..., Any]) -> Any:
    """Give the fixture the statistics of a few rounds, which a test may read; return a call's result."""
    duration_s, result = runner(None)
    end_s = time.monotonic() + fixture._max_time
    _, calls, loop = fixture._calibrate_timer(runner) if duration_s < fixture._max_time else (duration_s, 1, range(1))
    stats = fixture._make_stats(calls)
    for _ in range(fixture._min_rounds):
        stats.update(runner(loop))
        if time.monotonic() > end_s:
            break
    return result


def _run(commit: Path, words: list[str], plugin: object) -> int:
    """Return pytest's exit code; raises BorrowedError if pytest refuses the project's options."""
    options = ["-q", "--no-header", "--rootdir=.", f"--override-ini=cache_dir={Path.cwd() / 'cache'}"]
    options += [
        "-Wignore::pytest.PytestAssertRewriteWarning"
    ]  # dpbench, whose plugin pytest loads, is imported already
    options += ["--timeout=0"] if find_spec("pytest_timeout") else []  # the gate has its own limit
    os.environ.pop("PYTEST_XDIST_WORKER", None)  # a gate that a worker of xdist runs measures too
    with chdir(commit), redirect_stderr(io.StringIO()) as errors:
        code = int(pytest.main([*options, *words], plugins=[plugin]))
    lines = [re.sub("^(ERROR:|E) ", "", line).strip() for line in errors.getvalue().splitlines() if line.strip()]
    if code == pytest.ExitCode.USAGE_ERROR and lines:
        sentence = next((line for line in lines if "error: " in line), lines[-1] if "Error" in lines[-1] else lines[0])
        raise BorrowedError(f"pytest: {sentence.rpartition('error: ')[2]}")
    return code
