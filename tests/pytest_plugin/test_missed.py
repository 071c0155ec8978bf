"""A baseline whose test was not measured fails the run, unless the test was not selected."""

import pytest

from tests.pytest_plugin.suite import SUITE

pytest_plugins = ["pytester"]


@pytest.mark.usefixtures("saved")
def test_a_renamed_test_fails_for_both_names(run):
    result = run("--benchmark-compare", name="test_renamed", step_s=0.02)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*has no baseline; allowed:*", "FAILED test_suite.py::test_step: has a baseline, and was not measured"]
    )


@pytest.mark.usefixtures("saved")
def test_a_baseline_whose_test_is_gone_fails_alone_too(run):
    result = run("--benchmark-compare", suite="def test_other(): pass")
    assert result.ret == 1
    result.assert_outcomes(passed=1)


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("words", [["-k", "other"], ["test_suite.py::test_other"]])
def test_a_baseline_that_was_not_asked_for_is_not_missed(run, words):
    assert run("--benchmark-compare=0001", *words, suite=SUITE + "\ndef test_other(): pass\n").ret == 0


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    "words", [["--benchmark-disable", "--benchmark-enable"], ["--benchmark-skip", "--benchmark-only"]]
)
def test_switched_on_again_it_misses_what_is_gone(run, words):
    """The first option can be in a project's addopts; for pytest-benchmark the second one wins."""
    result = run("--benchmark-compare", *words, suite="def test_other(): pass")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED test_suite.py::test_step: has a baseline, and was not measured"])


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
