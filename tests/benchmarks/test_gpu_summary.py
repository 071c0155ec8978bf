"""How the steps of `make gpu` are judged and summarised. No process is started."""

import json

import pytest

from benchmarks.instruments.gpu_summary import (
    End,
    Kind,
    Outcome,
    Row,
    Step,
    code_of,
    lines_of,
    row_of,
    write_summary,
)
from dpbench.records.row import to_line
from tests.records.making import case, failed, ok

COUNTS = "=== 2 failed, 3 passed, 1 skipped in 130.25s (0:02:10) ==="
TESTS = Step("tests", (), 1.0, Kind.TESTS)
SCRIPT = Step("script", (), 1.0, passing=(0, 1))
PROJECTION = Step("projected", (), 1.0, passing=(0, 77))
KEYS = frozenset({("tuned", ("cuda:0", "cuda:1")), ("ddp", ("cuda:0", "cuda:1"))})
COMPARISON = Step("compared", (), 1.0, Kind.COMPARISON, wanted=KEYS)


def ended(exit_code=0, *tail, is_cut=False):
    return End(exit_code, is_cut, 1.0, tail)


@pytest.mark.parametrize(
    ("step", "end", "outcome", "note"),
    [
        (TESTS, ended(0, "== 3 passed in 1.00s =="), "passed", "3 passed in 1.00s"),
        (TESTS, ended(1, COUNTS), "failed", f"2 of the tests failed; {COUNTS.strip('= ')}"),
        (TESTS, ended(2, "== 3 passed in 1.00s ==", is_cut=True), "cut", "its time was up; 3 passed in 1.00s"),
        (TESTS, ended(-9, "tests/gpu/x.py ..", is_cut=True), "cut", "its time was up; tests/gpu/x.py .."),
        (TESTS, ended(2, COUNTS, is_cut=True), "failed", None),
        (TESTS, ended(0, "== 3 passed in 1.00s ==", is_cut=True), "passed", "3 passed in 1.00s"),
        (TESTS, ended(2, "== 1 passed, 2 errors in 1.00s ==", is_cut=True), "failed", None),
        (TESTS, ended(0, "== 7 skipped in 1.00s =="), "skipped", "7 skipped in 1.00s"),
        (TESTS, ended(5, "== no tests ran in 0.01s =="), "failed", "exit code 5; == no tests ran in 0.01s =="),
        (TESTS, ended(-11, "Segmentation fault"), "failed", "exit code -11; Segmentation fault"),
        (SCRIPT, ended(1, "a finding"), "passed", "a finding"),
        (SCRIPT, ended(77, "not run: no GPU"), "skipped", "not run: no GPU"),
        (SCRIPT, ended(2), "failed", "exit code 2"),
        (PROJECTION, ended(77, "elsewhere run: python"), "passed", "elsewhere run: python"),
        (SCRIPT, ended(-2, is_cut=True), "cut", "its time was up"),
    ],
)
def test_a_step_is_judged_by_its_kind(step, end, outcome, note, tmp_path):
    row = row_of(step, end, 2.0, tmp_path)
    assert row.outcome == outcome
    assert note is None or row.note == note


def folder_with(folder, *lines):
    folder.mkdir()
    (folder / "compare.jsonl").write_bytes(b"".join(lines))
    return folder


def test_a_comparison_is_judged_by_its_records(tmp_path):
    tuned, ddp = to_line(ok(case("tuned", "cuda*2"), 0)), to_line(ok(case("ddp", "cuda*2"), 0))
    crashed = to_line(failed(case("tuned", "cuda*2"), 1, "crashed", "signal 11"))
    lacking = "no times of ddp on cuda:0+cuda:1"

    def judged(name, end, *lines):
        row = row_of(COMPARISON, end, 2.0, folder_with(tmp_path / name, *lines))
        return row.outcome, row.note

    assert judged("all", ended(), tuned, ddp) == ("passed", "2 records")
    assert judged("lacks", ended(), tuned) == ("skipped", f"1 records, {lacking}")
    assert judged("bad", ended(), tuned, ddp, crashed) == ("failed", "1 of 3 records crashed; 2 records")
    assert judged("one is bad", ended(), ddp, crashed) == (
        "failed",
        "1 of 2 records crashed; 1 records, no times of tuned on cuda:0+cuda:1",
    )
    assert judged("cut", ended(130, is_cut=True), tuned) == ("cut", f"its time was up; 1 records, {lacking}")
    assert judged("cut and bad", ended(130, is_cut=True), ddp, crashed)[0] == "failed"
    assert judged("nothing", ended(1))[0] == "failed"
    assert judged("wrong input", ended(2, "dpbench: --batch"), tuned, ddp) == ("failed", "exit code 2; 2 records")
    assert judged("torn", ended(), tuned, ddp, ddp[:40]) == ("passed", "2 records")


def test_the_tests_that_failed_are_named_by_their_ids(tmp_path):
    lines = (
        "FAILED tests/gpu/test_step.py::test_every_policy[{'coalesce': False}] - AssertionError: a - b",
        "ERROR tests/gpu/test_step.py::test_every_policy[{'coalesce': False}] - RuntimeError: CUDA error",
        "FAILED tests/gpu/test_streams.py::test_a_pause[lanes2 remote-in forward]",
        "== 2 failed, 1 error in 2.00s ==",
    )
    assert row_of(TESTS, ended(1, *lines), 2.0, tmp_path).failed == (
        "tests/gpu/test_step.py::test_every_policy[{'coalesce': False}]",
        "tests/gpu/test_streams.py::test_a_pause[lanes2 remote-in forward]",
    )


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([Outcome.PASSED], 0),
        ([Outcome.PASSED, Outcome.CUT], 3),
        ([Outcome.SKIPPED], 3),
        ([Outcome.NOT_STARTED], 3),
        ([Outcome.CUT, Outcome.FAILED, Outcome.PASSED], 1),
        ([], 3),
    ],
)
def test_the_exit_code_shows_what_did_not_pass(outcomes, code):
    assert code_of([Row("step", outcome) for outcome in outcomes]) == code


def test_a_line_of_the_table_says_how_long_a_step_took_and_what_it_did():
    (line,) = lines_of([Row("step", Outcome.CUT, "its time was up", 70.4)])
    assert line.split(maxsplit=4) == ["step", "cut", "70", "s", "its time was up"]


def test_a_summary_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    write_summary(path, {}, [Row("a")], None)
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        write_summary(path, {}, [Row("a", Outcome.PASSED)], 0)
    assert json.loads(path.read_text())["exit_code"] is None
