"""Real forks that find, try and count benchmarks of a project: asv's and those of pytest-benchmark."""

import shutil

import pytest

from dpbench.cases.case import Case
from dpbench.engine.messages import CountJob, Listings, ListJob, ListJobs
from dpbench.gate.benchmarks import LISTER
from dpbench.jobs.count import run_jobs
from dpbench.records.record import Outcome
from tests.gate.borrowed_suites import make_project

TEST = "tests/test_speed.py::test_"
ASV = {
    **{
        f"speed.Cached.{name}({n}, '{kind}')": None
        for name in ("time_work", "track_size")
        for n in (100, 200)
        for kind in "ab"
    },
    "speed.time_work": None,
    "speed.time_garbage": None,
    "speed.Skipped.time_skipped": "its set-up skips it",
    "speed.Helped.time_helped": "its set-up starts a process",
    "speed.time_starts": "its call starts a process",
    "speed.time_swallows": "its call starts a process",
    "speed.time_fails": "ValueError: not today",
    "speed.time_async": "coroutine",
    "speed.timeraw_work": "timeraw starts a process",
}
PYTEST = {
    f"{TEST}work": None,
    f"{TEST}pedantic[1]": None,
    f"{TEST}pedantic[3]": None,
    f"{TEST}of_nothing": "passes nothing",
    f"{TEST}skipped": "not here",
    f"{TEST}fails": "ZeroDivisionError",
    f"{TEST}starts": "its call starts a process",
    f"{TEST}async": "coroutine",
}


@pytest.fixture
def commit(tmp_path):
    folder = make_project(tmp_path / "base")
    (tmp_path / "base-built").mkdir()
    (tmp_path / "base-scratch").mkdir()
    shutil.copy(folder / "source/toy.py", tmp_path / "base-built")
    return folder


def listing(commit, suite, text, pattern=True):
    job = ListJob(suite=suite, text=text, pattern=pattern, folder=str(commit))
    end = LISTER.run(ListJobs(jobs=(job,), timeout_s=60.0), 200.0).exit
    assert end.returncode == 0, end.tail.decode()
    return Listings.model_validate_json(end.record).listings[0]


@pytest.mark.parametrize(
    ("suite", "text", "expected", "problem"),
    [("asv", ".", ASV, "No module named 'no_such_module'"), ("pytest", "tests", PYTEST, None)],
)
def test_what_is_found_and_why_it_cannot_be_borrowed(commit, suite, text, expected, problem):
    listed = listing(commit, suite, text)
    refused = {benchmark.name: benchmark.refused for benchmark in listed.meant}
    assert refused.keys() == expected.keys()
    wrong = {name for name, why in expected.items() if (why or "") not in (refused[name] or "")}
    assert not wrong | {name for name, why in expected.items() if why is None and refused[name] is not None}, refused
    skipped = {benchmark.name for benchmark in listed.meant if benchmark.is_skipped}
    assert skipped == {name for name in expected if "skipped" in name}
    assert [problem in line for line in listed.problems] == ([True] if problem else [])
    assert list((commit.parent / "base-scratch").glob("tmp*")) == []


@pytest.mark.parametrize(
    ("suite", "text", "pattern", "names"),
    [
        ("asv", r"Cached.*100, 'a'", True, {f"speed.Cached.{name}(100, 'a')" for name in ("time_work", "track_size")}),
        ("asv", "speed.Cached.time_work", False, {name for name in ASV if "Cached.time_work" in name}),
        ("asv", "speed.Cached.time_work(200, 'b')", False, {"speed.Cached.time_work(200, 'b')"}),
        ("pytest", f"{TEST}pedantic", False, {f"{TEST}pedantic[1]", f"{TEST}pedantic[3]"}),
        ("pytest", f"./{TEST}pedantic[3]", True, {f"{TEST}pedantic[3]"}),
        ("pytest", "tests/none.py", True, set()),
    ],
)
def test_what_a_selection_means(commit, suite, text, pattern, names):
    assert {benchmark.name for benchmark in listing(commit, suite, text, pattern).meant} == names


def test_a_call_is_counted_and_its_lines_are_named(commit):
    listing(commit, "asv", "Cached", pattern=True)
    workloads = ["asv speed.time_work", "asv speed.Cached.track_size(200, 'b')", f"pytest {TEST}work", "asv speed.gone"]
    cases = [Case(variant="single", workload=workload, batch=1, devices=("cpu",), threads=1) for workload in workloads]
    jobs = [CountJob(case=case, folder=str(commit), details=True) for case in cases]
    time_work, track_size, test_work, gone = run_jobs(jobs)
    counts = time_work.counts.by_name()
    assert counts["forward.python_calls"] == 20_000 + 3  # time_work, work, and the generator's turns
    assert 20_000 * 8 < counts["forward.python_peak_bytes"] < 20_000 * 80
    assert "toy.py" in {detail.place.file for detail in time_work.details}
    assert track_size.counts.by_name() == {"value (unit)": 100.0}
    assert test_work.counts.by_name()["forward.python_calls"] == 20_000 + 2
    assert gone.outcome is Outcome.SKIPPED
