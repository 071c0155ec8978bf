"""Tests that use the `benchmark` fixture of pytest-benchmark, run by pytest itself.

A test hands a function to its fixture. `_Borrower` takes the place of the fixture's runner at that moment: fixtures,
parameters and marks are in force then, and stay so until the function has been measured.
"""

from collections.abc import Callable
from contextlib import chdir
from importlib.util import find_spec
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pytest_benchmark.fixture import BenchmarkFixture, PauseInstrumentation

from dpbench.measure.borrowed.lent import BorrowedError, Lending, Sample, SkippedError, Use, new_clock
from dpbench.records.borrowed import Listed, Listing

_FIXTURE = "benchmark"
_ASYNC = "it is a coroutine function, and a gate times calls that return their result"


def list_pytest(commit: Path, where: str) -> Listing:
    """Return the tests in a file or folder, or of a node id, that use the fixture `benchmark`."""
    if not (commit / where.partition("::")[0]).exists():
        return Listing()
    collector = _Collector()
    with chdir(commit):
        pytest.main(["--collect-only", *_options(), where], plugins=[collector])
    listed = [Listed(name=item.nodeid, refused=_refused(item)) for item in collector.items if _uses(item)]
    return Listing(benchmarks=tuple(listed), problems=tuple(collector.problems))


def lend_pytest(commit: Path, name: str, lending: Lending, use: Use) -> None:
    """Run the test; lend the function that it hands to its fixture to `use`. Raises BorrowedError if there is none."""
    borrower = _Borrower(lending, use)
    base = Path.cwd() / "pytest"
    with (
        chdir(commit),
        mock.patch.object(
            BenchmarkFixture, "_raw", lambda fixture, *args, **kwargs: borrower.raw(fixture, args, kwargs)
        ),
        mock.patch.object(BenchmarkFixture, "_raw_pedantic", borrower.pedantic_of(BenchmarkFixture._raw_pedantic)),
    ):
        code = int(pytest.main([*_options(), f"--basetemp={base}", name], plugins=[borrower]))
    if borrower.error is not None:
        raise borrower.error
    if not borrower.is_used:
        kind = SkippedError if borrower.is_skipped else BorrowedError
        raise kind(borrower.reason or f"it hands nothing to its fixture `benchmark` (pytest's exit code {code})")


class _Collector:
    """A plugin that keeps what was collected."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.problems: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = session.items

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.problems.append(_last_line(report))


class _Borrower:
    """A plugin that lends what the test hands to its fixture. `reason` says why the test did not get so far."""

    def __init__(self, lending: Lending, use: Use) -> None:
        self._lending, self._use = lending, use
        self.is_used = self.is_skipped = False
        self.reason = ""
        self.error: BaseException | None = None

    def raw(self, fixture: Any, args: Any, kwargs: Any) -> Any:
        """Stand for `BenchmarkFixture._raw`: ``benchmark(function, ...)``."""
        function, *arguments = args
        runner = fixture._make_runner(self._checked(function), arguments, kwargs)
        number, clock = self._lending.number, new_clock()

        def take() -> Sample:
            if number is None:
                duration, loops, _ = fixture._calibrate_timer(runner)
                return Sample(duration / loops, loops)
            return Sample(runner(range(number), timer=clock) / number, number)

        fixture._min_time = max(fixture._min_time, self._lending.sample_s)
        self._lend(fixture, take)
        return function(*arguments, **kwargs)

    def pedantic_of(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Stand for `BenchmarkFixture._raw_pedantic`: a sample is one of its rounds."""

        def pedantic(fixture: Any, target: Any, *args: Any, iterations: int = 1, **options: Any) -> Any:
            stats, probed = _LastDuration(), self._checked(target)
            fixture._timer, fixture.disabled, fixture._make_stats = new_clock(), False, lambda _: stats
            once = {**options, "rounds": 1, "warmup_rounds": 0, "iterations": iterations}

            def take() -> Sample:
                original(fixture, probed, *args, **once)
                return Sample(stats.duration_s / iterations, iterations)

            self._lend(fixture, take)
            return original(fixture, target, *args, **once)

        return pedantic

    def _checked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if iscoroutinefunction(function):
            self.error = BorrowedError(_ASYNC)
            raise self.error
        return self._lending.probed(function)

    def _lend(self, fixture: Any, take: Callable[[], Sample]) -> None:
        fixture._disable_gc = False  # the gate judges the mean, which has to see what garbage costs
        self.is_used = True
        try:
            with PauseInstrumentation():
                self._use(take)
        except BaseException as error:
            self.error = error
            raise

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed and not self.reason:
            self.is_skipped = report.skipped
            self.reason = f"the test is skipped: {_skipped(report)}" if report.skipped else _last_line(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.reason:
            self.reason = _last_line(report)


class _LastDuration:
    """Stands for pytest-benchmark's statistics of a fixture."""

    duration_s = 0.0

    def update(self, duration_s: float) -> None:
        self.duration_s = duration_s


def _options() -> list[str]:
    quiet = ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:dpbench", "--rootdir=."]
    return [*quiet, "-n0"] if find_spec("xdist") else quiet


def _uses(item: Any) -> bool:
    return _FIXTURE in getattr(item, "fixturenames", ())


def _refused(item: Any) -> str | None:
    return _ASYNC if iscoroutinefunction(item.obj) else None


def _skipped(report: Any) -> str:
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)


def _last_line(report: Any) -> str:
    text = getattr(getattr(report.longrepr, "reprcrash", None), "message", None) or str(report.longrepr)
    return next((line.removeprefix("E ").strip() for line in text.strip().splitlines() if line), "without a reason")
