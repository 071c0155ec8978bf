"""A baseline whose test ran and was not measured fails the run. A test that was left out is not missed."""

import pytest

from tests.pytest_plugin.suite import SUITE

pytest_plugins = ["pytester"]

SUITE_IN_WORKERS = """
def test_step(dp_benchmark):
    steps = []
    dp_benchmark(lambda: steps.append(1), rounds=20, warmup_rounds=3, count=False)
    assert len(steps) == {steps}
"""
OTHER = "\ndef test_other(): pass\n"
UNMEASURED = "def test_step(dp_benchmark): pass"
SKIPPED = "import pytest\n@pytest.mark.skip\ndef test_step(dp_benchmark): pass"
MISSED = "FAILED test_suite.py::test_step: has a baseline, and was not measured"


@pytest.mark.usefixtures("saved")
def test_a_renamed_test_fails_because_it_has_no_baseline(run):
    result = run("--benchmark-compare", name="test_renamed", step_s=0.02)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*has no baseline; allowed:*"])


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("suite", [UNMEASURED, SKIPPED])
def test_a_test_that_ran_and_measured_nothing_is_missed(run, suite):
    result = run("--benchmark-compare", suite=suite)
    assert result.ret == 1
    result.stdout.fnmatch_lines([MISSED])


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    "words",
    [
        ["-k", "other"],
        ["-m", "not dp_threshold"],
        ["test_suite.py::test_other"],
        ["--deselect", "test_suite.py::test_step"],
        ["--ignore", "test_suite.py", "."],
        ["--ignore-glob", "*suite*", "."],
        ["-o", "python_files=none_*.py", "."],
        ["-o", "python_functions=test_o*"],
        ["--co"],
    ],
)
def test_a_baseline_that_was_not_asked_for_is_not_missed(run, pytester, words):
    pytester.makepyfile(test_a=OTHER)
    result = run("--benchmark-compare=0001", *words, suite=SUITE + OTHER)
    assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    result.stdout.no_fnmatch_line("*was not measured*")


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    "conftest",
    [
        "collect_ignore = ['test_suite.py']",
        "def pytest_ignore_collect(collection_path): return True if 'suite' in collection_path.name else None",
        "def pytest_collection_modifyitems(items): items[:] = [item for item in items if 'step' not in item.name]",
    ],
)
def test_what_a_conftest_leaves_out_is_not_missed(run, pytester, conftest):
    pytester.makeconftest(conftest)
    pytester.makepyfile(test_a=OTHER)
    assert run("--benchmark-compare", suite=SUITE + OTHER).ret == 0


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("words", [["-n", "1"], ["-n0"]])
def test_under_xdist_it_does_as_pytest_benchmark_does(pytester, words):
    """With -n0 there is no xdist, so it measures."""
    pytester.makepyfile(test_suite=SUITE_IN_WORKERS.format(steps=23 if words == ["-n0"] else 4))
    plugins = ("-p", "pytest_benchmark.plugin", "-p", "dpbench.pytest_plugin", "-p", "xdist.plugin")
    result = pytester.runpytest_subprocess(*plugins, "--benchmark-compare", *words)
    result.assert_outcomes(passed=1)
    assert result.ret == 0


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    "words", [["--benchmark-disable", "--benchmark-enable"], ["--benchmark-skip", "--benchmark-only"]]
)
def test_switched_on_again_it_misses_what_is_not_measured(run, words):
    """The first option can be in a project's addopts; for pytest-benchmark the second one wins."""
    result = run("--benchmark-compare", *words, suite=UNMEASURED)
    assert result.ret == 1
    result.stdout.fnmatch_lines([MISSED])


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("words", ["--collect-only", "--setup-plan", "--setup-only"])
def test_a_run_that_measures_nothing_misses_nothing(run, words):
    result = run("--benchmark-compare", words)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*was not measured*")


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("words", "broken"),
    [
        (["-x"], "def test_a(): assert False"),
        (["--maxfail=1"], "def test_a(): assert False"),
        ([], "import pytest\ndef test_a(): pytest.exit('enough')"),
        ([], "import not_there"),
    ],
)
def test_what_a_run_that_was_stopped_did_not_come_to_is_not_missed(run, pytester, words, broken):
    pytester.makepyfile(test_a=broken)
    result = run("--benchmark-compare", *words)
    assert result.ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    result.stdout.no_fnmatch_line("*was not measured*")


def test_what_did_not_fail_last_time_is_not_missed(run, pytester):
    """--lf leaves out files, and tests of a file, without deselecting them."""
    other = "from fake import step\ndef test_other(dp_benchmark): dp_benchmark(step, rounds=20, count=False)\n"
    pytester.makepyfile(test_the_last=other)
    assert run("--benchmark-save=before", suite=SUITE + other).ret == 0
    assert run("--benchmark-compare", suite=SUITE + other, step_s=0.004).ret == 1
    result = run("--benchmark-compare", "--lf", suite=SUITE + other)
    result.assert_outcomes(passed=1)
    assert result.ret == 0
