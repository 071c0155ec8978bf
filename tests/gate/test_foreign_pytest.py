"""Tests of pytest-benchmark as strangers write them: what fails after the benchmark, and options of their projects."""

import pytest

from dpbench.engine.messages import LockstepJob, LockstepJobs, Side, SideName
from dpbench.jobs.lockstep_child import respond
from dpbench.measure.borrowed import pytest_suite  # noqa: F401  # in a fork, pytest's rewriting of it may fail
from dpbench.records.record import Outcome
from tests.gate.foreign_suites import case_of, counted, listed, refused, write_suite

TESTS = """
import sys
import pytest

@pytest.fixture
def closing():
    yield
    assert open("/proc/self/comm").read() == "another", "left open"

@pytest.fixture(scope="module")
def closing_late():
    yield
    raise RuntimeError("too late")

def test_right(benchmark): assert benchmark(sum, [1, 2]) == 3
def test_wrong(benchmark): assert benchmark(sum, [1, 2]) == 4
def test_wrong_with_text(benchmark): assert benchmark(sum, [1, 2]) == 4, "AssertionError of a sum"
def test_wrong_pedantic(benchmark): assert benchmark.pedantic(sum, args=([1, 2],), rounds=3) == 4
def test_fails(benchmark):
    benchmark(sum, [1])
    pytest.fail("not good enough")
def test_raises(benchmark):
    benchmark(sum, [1])
    {}["no key"]
def test_teardown(benchmark, closing): benchmark(sum, [1])
def test_swallowed(benchmark):
    benchmark(sum, [1])
    with pytest.raises(KeyError):
        {}["no key"]
def test_stats(benchmark):
    benchmark(sum, [1])
    assert 0 < benchmark.stats["mean"] < 0.1 and benchmark.stats.stats.max < 1 and len(benchmark.stats["data"]) > 1
    benchmark.extra_info["note"] = benchmark.stats["median"]
def test_stats_pedantic(benchmark):
    benchmark.pedantic(sum, args=([1],), iterations=2, rounds=3)
    assert 0 < benchmark.stats.stats.mean < 0.1
def test_too_slow(benchmark):
    benchmark(sum, [1])
    assert benchmark.stats["mean"] < 1e-12, "too slow"
def test_decorated(benchmark):
    @benchmark
    def result():
        return 3
    assert result == 3
def test_exits(benchmark):
    benchmark(sum, [1])
    pytest.exit("enough", returncode=0)
def test_leaves(benchmark):
    benchmark(sum, [1])
    sys.exit(0)
@pytest.mark.xfail(strict=True, reason="unless it works")
def test_works_unexpectedly(benchmark): benchmark(sum, [1])
@pytest.mark.xfail(reason="known bug")
def test_known_bug(benchmark): assert benchmark(sum, [1]) == 2
def test_skipped_late(benchmark):
    benchmark(sum, [1])
    pytest.skip("not here")
def test_module_teardown(benchmark, closing_late): benchmark(sum, [1])
"""
WHY = {
    "test_right": None,
    "test_wrong": "its test fails: assert 3 == 4",
    "test_wrong_with_text": "its test fails: AssertionError: AssertionError of a sum",
    "test_wrong_pedantic": "its test fails: assert 3 == 4",
    "test_fails": "its test fails: Failed: not good enough",
    "test_raises": "its test fails: KeyError: 'no key'",
    "test_teardown": "its test fails: AssertionError: left open",
    "test_swallowed": None,
    "test_stats": None,
    "test_stats_pedantic": None,
    "test_too_slow": "its test fails: AssertionError: too slow",
    "test_decorated": None,
    "test_exits": "its test does not run to its end; pytest's exit code is 0",
    "test_leaves": "its test fails: SystemExit: 0",
    "test_works_unexpectedly": "its test fails: [XPASS(strict)] unless it works",
    "test_known_bug": "the test is skipped: known bug",
    "test_skipped_late": "the test is skipped: Skipped: not here",
    "test_module_teardown": "its test fails: RuntimeError: too late",
}


def test_a_test_that_does_not_pass_to_its_end_is_refused_with_its_assertion(tmp_path):
    folder = write_suite(tmp_path / "head", {"tests/test_a.py": TESTS})
    refusals = refused(folder, "pytest", "tests")
    assert {name: why for name, (why, _) in refusals.items()} == WHY
    assert {name for name, (_, skipped) in refusals.items() if skipped} == {"test_known_bug", "test_skipped_late"}


LATE = """
calls = []

def work():
    calls.append(1)
    return 7 if len(calls) < {wrong_from} else 0

def test_work(benchmark):
    assert benchmark(work) == 7
"""


def test_a_result_that_is_wrong_after_many_calls_fails_the_count_or_the_round(tmp_path):
    """A count takes a few calls. A round takes hundreds, and ends before the assertion."""
    for wrong_from, name in ((4, "soon"), (30, "late"), (10**9, "never")):
        write_suite(tmp_path / name, {"test_a.py": LATE.format(wrong_from=wrong_from)})
        (benchmark,) = listed(tmp_path / name, "pytest", "test_a.py").meant
        assert benchmark.refused is None
    case = "pytest test_a.py::test_work"
    (soon,), (late,) = counted(tmp_path / "soon", case), counted(tmp_path / "late", case)
    assert (soon.outcome, soon.reason) == (Outcome.SKIPPED, "its test fails: assert 0 == 7")
    assert late.outcome is Outcome.OK
    base, head = (Side(folder=str(tmp_path / name)) for name in ("never", "late"))
    job = LockstepJob(
        benchmark="work",
        case=case_of(case),
        sides={SideName.BASE: base, SideName.TWIN: base, SideName.HEAD: head},
        cores=(0,),
        blocks=2,
        block_s=0.001,
        timeout_s=60.0,
        seed=1,
    )
    for sides, outcome, side in (
        (job.sides, Outcome.CRASHED, SideName.HEAD),
        (dict.fromkeys(SideName, base), Outcome.OK, None),
    ):
        jobs = LockstepJobs(jobs=(job.model_copy(update={"sides": sides}),))
        (taken,) = respond(jobs).rounds
        assert (taken.outcome, taken.side) == (outcome, side), taken.reason
        assert "its test fails: assert 0 == 7" in (taken.reason or "") or outcome is Outcome.OK


RIGHT = "def test_right(benchmark): assert benchmark(sum, [1, 2]) == 3\ndef test_other(): assert False\n"


@pytest.mark.parametrize(
    "options",
    [
        "--benchmark-skip",
        "--benchmark-only",
        "--benchmark-disable --benchmark-only",
        "--benchmark-skip --benchmark-disable",
        "-n 2 --dist loadscope",
        "-nauto --benchmark-only",
        "--numprocesses=2 --dist=loadfile --maxprocesses 2 --benchmark-only",
        "--benchmark-json=out.json --junitxml=report.xml",
        "--benchmark-autosave --benchmark-save=it",
        "--timeout=1",
        "-x --lf --maxfail=1 --strict-markers -W error",
        "-p no:xdist -n 4",
        "-p no:randomly -ra --tb=native\nfilterwarnings = error",
    ],
)
def test_options_of_a_project_leave_no_benchmark_out(tmp_path, options):
    folder = write_suite(tmp_path / "head", {"test_a.py": RIGHT, "pytest.ini": f"[pytest]\naddopts = {options}\n"})
    assert refused(folder, "pytest", "test_a.py") == {"test_right": (None, False)}


@pytest.mark.parametrize(
    ("ini", "sentence"),
    [
        ("addopts = --cov=toy --cov-report=xml", "pytest: unrecognized arguments: --cov=toy --cov-report=xml"),
        ("addopts = --asyncio-mode=auto", "pytest: unrecognized arguments: --asyncio-mode=auto"),
        ("required_plugins = pytest-not-there", "pytest: Missing required plugins: pytest-not-there"),
        ("minversion = 99", "'minversion' requires pytest-99"),
        ("addopts = -p not_there", 'pytest: Error importing plugin "not_there": No module named'),
        ("addopts = --benchmark-timer=no.such", "No module named 'no'"),
        ("addopts = -k other", "pytest deselects test_a.py::test_right, by -m, -k or --deselect"),
        ('addopts = -m "slow"', "pytest deselects test_a.py::test_right, by -m, -k or --deselect"),
    ],
)
def test_what_pytest_refuses_is_its_own_sentence(tmp_path, ini, sentence):
    folder = write_suite(tmp_path / "head", {"test_a.py": RIGHT, "pytest.ini": f"[pytest]\n{ini}\n"})
    listing = listed(folder, "pytest", "test_a.py")
    assert listing.meant == ()
    assert [problem for problem in listing.problems if sentence in problem], listing.problems


def test_a_conftest_that_does_not_import_is_named(tmp_path):
    folder = write_suite(tmp_path / "head", {"test_a.py": RIGHT, "conftest.py": "import no_such_thing"})
    assert listed(folder, "pytest", "test_a.py").problems == (
        "pytest: ModuleNotFoundError: No module named 'no_such_thing'",
    )
