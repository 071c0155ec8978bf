"""A threshold that the samples cannot decide, and pytest-benchmark's own thresholds beside it."""

import json

import pytest

from dpbench.analysis.threshold import growth_over
from dpbench.judge.estimate import Estimate
from dpbench.records.baseline import Figures
from tests.pytest_plugin.suite import SUITE

pytest_plugins = ["pytester"]
UNDECIDED = r"undecided: median is 0\.\d+ to [\d.]+ times the baseline's, so both 1 and the limit of 1\.05 are possible"


def figures(value, low, high):
    return Figures(Estimate(value, low, high), Estimate(value, value, high), 20)


@pytest.fixture
def noisy(saved):
    """A baseline whose median lies somewhere between 0.16 and 140 ms."""
    content = json.loads(saved.read_text())
    median = content["benchmarks"][0]["extra_info"]["dpbench"]["median_s"]
    median["low"], median["high"] = 0.000164, 0.140
    saved.write_text(json.dumps(content))


@pytest.mark.usefixtures("noisy")
@pytest.mark.parametrize("step_s", [0.006, 0.002, 0.0005], ids=["slower", "the same", "faster"])
def test_a_baseline_that_varies_too_much_is_a_warning(run, step_s):
    result = run("--benchmark-compare", step_s=step_s)
    result.assert_outcomes(passed=1, warnings=1)
    assert result.ret == 0
    result.stdout.re_match_lines([rf".*UndecidedThresholdWarning: {UNDECIDED}.*The baseline varies more; .*"])


@pytest.mark.usefixtures("noisy")
def test_a_strict_comparison_fails_what_is_undecided(run):
    result = run("--benchmark-compare", "--dp-strict", step_s=0.006)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([f"{UNDECIDED}.*"])


@pytest.mark.usefixtures("saved")
def test_a_strict_comparison_passes_what_is_decided(run):
    run("--benchmark-compare", "--dp-strict", "-W", "error").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        ((1.2, 1.1, 1.3), "slower"),
        ((1.2, 0.9, 1.3), "undecided"),  # it contains 1 and the limit
        ((1.0, 0.9, 1.2), "undecided"),
        ((0.9, 0.6, 1.1), "undecided"),
        ((1.04, 1.01, 1.2), "pass"),  # it grew, by less than the limit
        ((1.0, 0.96, 1.04), "pass"),  # it contains 1 alone
        ((0.5, 0.4, 0.6), "pass"),
        ((1.04, None, None), "pass"),
        ((1.06, None, None), "slower"),
    ],
)
def test_the_interval_of_the_ratio_decides(now, verdict):
    growth = growth_over(figures(*now), figures(1.0, 1.0, 1.0), {"median": 0.05})
    assert [bool(growth.slower), bool(growth.undecided)] == [verdict == "slower", verdict == "undecided"]


def test_both_runs_widen_the_interval_and_the_wider_one_is_named():
    narrow, wide, limit = figures(1.1, 1.06, 1.14), figures(1.0, 0.9, 1.1), {"median": 0.05}
    exact = figures(1.0, 0.99, 1.01)
    assert growth_over(narrow, exact, limit).slower
    (line,) = growth_over(narrow, wide, limit).undecided
    assert "The baseline varies more" in line
    (line,) = growth_over(wide, exact, limit).undecided
    assert "This run varies more" in line


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("threshold", ['median="5%"', 'median="900%"'], ids=["failed", "passed"])
def test_a_regression_of_pytest_benchmark_is_a_line_without_a_traceback(run, threshold):
    """pytest-benchmark raises PerformanceRegression in its summary, and pytest then prints no other failure."""
    words = ("--benchmark-compare", "--benchmark-compare-fail=median:5%")
    result = run(*words, step_s=0.006, threshold=threshold)
    assert result.ret == 1
    result.stdout.re_match_lines([r"FAILED test_step \(0001_before\): --benchmark-compare-fail: .*"])
    if "900" not in threshold:
        result.stdout.fnmatch_lines(["FAILED test_suite.py::test_step - Failed: median is 3 times*"])
    for text in (result.stdout.str(), result.stderr.str()):
        assert "Traceback" not in text
        assert "PerformanceRegression" not in text


@pytest.mark.usefixtures("saved")
def test_without_a_regression_the_thresholds_of_pytest_benchmark_pass(run):
    assert run("--benchmark-compare", "--benchmark-compare-fail=median:5%").ret == 0


def test_a_session_without_dp_benchmark_is_left_to_pytest_benchmark(run):
    suite = "from fake import step\ndef test_other(benchmark): benchmark.pedantic(step, rounds=20)\n"
    both = SUITE + suite
    assert run("--benchmark-save=before", suite=both).ret == 0
    words = ("--benchmark-compare", "--benchmark-compare-fail=median:5%", "-k", "test_other")
    result = run(*words, step_s=0.006, suite=both)
    assert "PerformanceRegression" in result.stderr.str()
