"""pytest plugin: `dp_benchmark`, baselines of one machine, thresholds on median or minimum.

    def test_step(dp_benchmark):
        dp_benchmark(step, devices=["cuda:0", "cuda:1"], rounds=50)

    pytest --benchmark-save before ...; pytest --benchmark-compare ... [--dp-strict]

It extends pytest-benchmark, whose options all work, and does nothing if that is not installed. pytest imports this file
in every run of every project that has dpbench installed, so importing it must be cheap.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

    from dpbench.measure.benchmarked import Pedantic
    from dpbench.records.baseline import Figures
    from dpbench.report.device_table import BenchmarkRow

_EXTRA = "dpbench"
"""The key of the plugin's own facts in pytest-benchmark's extra_info and machine_info."""


class UndecidedThresholdWarning(pytest.PytestWarning):
    """The samples vary too much to say whether a figure grew by more than its `dp_threshold`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("benchmark").addoption(
        "--dp-strict", action="store_true", help="Fail a dp_threshold that the samples cannot decide; otherwise warn."
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "dp_threshold(median='5%', minimum='5%'): a dp_benchmark fails if one of these grew by more than that "
        "over the baseline of --benchmark-compare, and the interval of the ratio is above 1. If the interval contains "
        "both 1 and the limit, the test warns; with --dp-strict it fails.",
    )
    if config.getoption("benchmark_compare", None) is not None:  # pytest-benchmark is installed
        config.stash[_HELD] = _Held(config)
        config.pluginmanager.register(config.stash[_HELD], "dpbench-baselines")


@pytest.fixture
def dp_benchmark(request: pytest.FixtureRequest, benchmark: "Pedantic") -> Callable[..., Any]:
    """Call it with a step, a function without arguments; it returns the step's last result.

    `devices` are all that the step uses. They are idle at both ends of every round. There are exactly `rounds`, at
    least 20, after `warmup_rounds`. Warm-up goes on until `trials_left` returns 0. For a step with dpbench's wrapper
    use ``trials_left=lambda: model.trials_left``, because it tries ways of dispatch in its first steps.

    With `count`, two more steps are counted: operators, FLOPs, Python calls. Use ``count=False`` if a torch dispatch
    mode disturbs the step.
    """
    held = request.config.stash[_HELD]

    def run(
        step: Callable[[], Any],
        *,
        devices: "Sequence[str | torch.device]" = ("cpu",),
        rounds: int = 50,
        warmup_rounds: int = 5,
        trials_left: Callable[[], int | None] = lambda: 0,
        count: bool = True,
    ) -> Any:
        return held.run(_Asked(step, devices, rounds, warmup_rounds, trials_left, count), request.node, benchmark)

    return run


@dataclass(frozen=True)
class _Asked:
    """The arguments of one call of `dp_benchmark`."""

    step: Callable[[], Any]
    devices: "Sequence[str | torch.device]"
    rounds: int
    warmup_rounds: int
    trials_left: Callable[[], int | None]
    count: bool


class _Held:
    """What one session measured, and its baselines."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._compares = bool(config.getoption("benchmark_compare"))
        self._baselines: dict[str, Figures] = {}
        self._rows: list[BenchmarkRow] = []
        self._ran: set[str] = set()
        self._missed: list[str] = []
        self._other: Any = None
        self._regressions: list[tuple[str, str]] = []

    def run(self, asked: _Asked, item: pytest.Item, benchmark: "Pedantic") -> Any:
        from dpbench.measure.benchmarked import LEAST_ROUNDS, counters_of, figures_of, run_rounds, window_json
        from dpbench.records.baseline import to_json
        from dpbench.report.device_table import BenchmarkRow

        _check_whole("rounds", asked.rounds, LEAST_ROUNDS)
        _check_whole("warmup_rounds", asked.warmup_rounds, 0)
        marker = item.get_closest_marker("dp_threshold")
        threshold = None if marker is None else _threshold(marker)
        devices = _devices(asked.devices)
        result, window = run_rounds(
            benchmark,
            asked.step,
            devices,
            rounds=asked.rounds,
            warmup_rounds=asked.warmup_rounds,
            trials_left=asked.trials_left,
        )
        if benchmark.stats is None:  # --benchmark-disable
            return result
        figures, read = figures_of(benchmark.stats["data"]), window_json(window)
        counters = counters_of(asked.step) if asked.count else {}
        facts = {"devices": [str(device) for device in devices], "window": read, "counters": counters}
        benchmark.extra_info[_EXTRA] = {**to_json(figures), **facts}
        then = self._baselines.get(item.nodeid)
        self._rows.append(BenchmarkRow(item.nodeid, figures, then, window))
        if self._compares:
            _judge(item, figures, then, threshold)
        return result

    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        if self._rows:
            machine_info[_EXTRA] = _this_machine()

    @pytest.hookimpl(tryfirst=True)
    def pytest_benchmark_compare_machine_info(
        self, benchmarksession: Any, machine_info: dict[str, Any], compared_benchmark: Mapping[str, Any]
    ) -> None:
        """Read a baseline, of several files the last. Raises UsageError.

        pytest-benchmark then warns of each field of machine_info that differs or is missing. So this hook adds
        dpbench's.
        """
        from dpbench.records.baseline import BaselineError, parse_saved, refuse_foreign

        self._other = benchmarksession
        try:
            saved = parse_saved(compared_benchmark)
            if saved.machine is None:  # the file has no dp_benchmark
                return
            machine_info[_EXTRA] = _this_machine()
            refuse_foreign(machine_info[_EXTRA], saved.machine)
            self._baselines = saved.figures()
        except BaselineError as error:
            raise pytest.UsageError(f"--benchmark-compare: {error}") from error

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._ran.add(nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the session if a baseline's test ran unmeasured, or if pytest-benchmark reports a regression.

        For --benchmark-compare-fail, pytest-benchmark raises in its own summary, and pytest prints a traceback in place
        of the failures. So these regressions become lines of this plugin's summary.
        """
        if self._rows and self._other is not None:
            self._regressions, self._other.performance_regressions = self._other.performance_regressions, []
            _fail(session, bool(self._regressions))
        if _measures(self._config):
            missed = self._ran.difference(row.name for row in self._rows)
            self._missed = [name for name in self._baselines if name in missed]
            _fail(session, bool(self._missed))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        from dpbench.report.device_table import benchmark_lines
        from dpbench.text.outside import one_line

        if not (self._rows or self._missed):
            return
        terminalreporter.section("dp_benchmark: of the rounds [95 % interval], all devices idle at both ends")
        for line in benchmark_lines(self._rows, self._config.get_terminal_writer().fullwidth):
            terminalreporter.write_line(line)
        for name, reason in self._regressions:
            terminalreporter.write_line(f"FAILED {one_line(f'{name}: --benchmark-compare-fail: {reason}')}", red=True)
        for name in self._missed:
            terminalreporter.write_line(f"FAILED {one_line(name)}: has a baseline, and was not measured", red=True)


_HELD = pytest.StashKey[_Held]()


def _this_machine() -> dict[str, Any]:
    from dpbench.measure.environment import read_environment
    from dpbench.records.baseline import machine_of

    return machine_of(read_environment())


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}: {value!r} is not allowed; allowed: whole numbers, {least} and above")
    if value < least:
        reason = " for an interval" if name == "rounds" else ""
        raise ValueError(f"{name}: {value} are too few{reason}; allowed: {least} and above")


def _devices(asked: "Sequence[str | torch.device]") -> "list[torch.device]":
    import torch

    wrong = f"devices: {asked!r}; allowed: a list of all that the step uses, such as ['cpu'] or ['cuda:0', 'cuda:1']"
    if isinstance(asked, str) or not asked:
        raise ValueError(wrong)
    try:
        return [torch.device(device) for device in asked]
    except (RuntimeError, TypeError) as error:
        raise ValueError(wrong) from error


def _threshold(marker: pytest.Mark) -> Any:
    from dpbench.analysis.threshold import parse_threshold

    return parse_threshold({**{f"argument {i}": value for i, value in enumerate(marker.args)}, **marker.kwargs})


def _judge(item: pytest.Item, now: "Figures", then: "Figures | None", threshold: Any) -> None:
    """Fail the test if a figure grew too much. Warn if that is undecided, or fail with --dp-strict."""
    from dpbench.analysis.threshold import growth_over

    if then is None:
        pytest.fail("has no baseline; allowed: one saved by a run of this test, with --benchmark-save", pytrace=False)
    if threshold is None:
        return
    growth = growth_over(now, then, threshold)
    undecided = [f"undecided: {line}" for line in growth.undecided]
    if growth.slower or (undecided and item.config.getoption("dp_strict")):
        pytest.fail("\n".join([*growth.slower, *undecided]), pytrace=False)
    for line in undecided:
        item.warn(UndecidedThresholdWarning(line))


def _fail(session: pytest.Session, is_failed: bool) -> None:
    """Give a session that would pass the exit code of failed tests."""
    if is_failed and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _measures(config: pytest.Config) -> bool:
    """Whether this session measures its tests. pytest-benchmark switches itself off under xdist too."""
    session: Any = config._benchmarksession  # type: ignore[attr-defined]
    only_set_up = any(config.getoption(name) for name in ("setuponly", "setupplan"))
    return not (session.disabled or session.skip or only_set_up)
