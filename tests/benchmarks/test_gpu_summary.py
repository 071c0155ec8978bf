"""How the steps of `make gpu` are planned, judged and summarised. No process is started."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.gpu_run import End
from benchmarks.gpu_steps import (
    GRAPHS,
    MACHINE_FILE,
    Kind,
    Place,
    Step,
    Work,
    doubling,
    fitted,
    lost,
    needed_s,
    reductions,
    rehearsed,
    steps_of,
)
from benchmarks.gpu_summary import Outcome, Row, busy_percent, code_of, lines_of, row_of, write_summary
from dpbench.cases.devices import parse_devices
from dpbench.cases.spec import from_options
from dpbench.cases.variants import SCHEMES
from dpbench.records.readings import Reading
from dpbench.records.record import to_line
from tests.records.making import METRICS, case, failed, ok, telemetry

ROOT = Path(__file__).parents[2]
COUNTS = "=== 2 failed, 3 passed, 1 skipped in 130.25s (0:02:10) ==="
TESTS = Step("tests", (), 1.0, Kind.TESTS)
SCRIPT = Step("script", (), 1.0, passing=(0, 1))
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
    assert judged("torn", ended(), tuned, ddp, ddp[:40]) == ("failed", "1 torn lines; 2 records")


def test_how_busy_each_device_was_is_in_the_row(tmp_path):
    def measured(number, first, second):
        record = ok(case("tuned", "cuda*2"), number)
        return record.model_copy(
            update={"metrics": METRICS.model_copy(update={"telemetry": {"cuda:0": first, "cuda:1": second}})}
        )

    none = Reading(reason="no such counter")
    driver = telemetry(30.0, sm_busy_percent=none)
    blind = telemetry(30.0, sm_busy_percent=none, kernel_running_percent=Reading(reason="no samples"))
    records = [
        measured(0, telemetry(50.0, kernel_running_percent=Reading(value=99.0)), driver),
        measured(1, telemetry(70.0, kernel_running_percent=Reading(value=99.0)), blind),
        failed(case(), 0, "crashed", ""),
    ]
    folder = folder_with(tmp_path / "compared", *map(to_line, records))
    found = row_of(COMPARISON, ended(), 2.0, folder).busy_percent
    assert found == {records[0].case.id: {"cuda:0": 60.0, "cuda:1": 30.0}}
    assert busy_percent([measured(0, "NVML: no driver", blind).to_json()]) == {
        records[0].case.id: {"cuda:0": "NVML: no driver", "cuda:1": "no samples"}
    }


def test_a_machine_that_cannot_be_described_is_a_failure():
    (machine,) = (step for step in steps_of(Place("cuda", 2), Work(), Path("out")) if step.name == "machine")
    assert value_of(machine, "--machine-file") == "out/machine.toml"
    row = row_of(machine, ended(3, "dpbench: machine-file: device.memory"), 1.0, Path("out"))
    assert (row.outcome, row.note.endswith("dpbench: machine-file: device.memory")) == ("failed", True)


def test_projected_times_are_lines_below_their_step():
    *_, projected = steps_of(Place("cuda", 2), Work(), Path("out"))
    done = row_of(projected, ended(0, "tuned: measured 2 ms", "1 cases: from 1 to 1"), 1.0, Path("out"))
    assert (done.outcome, done.note, done.lines) == ("passed", "1 cases: from 1 to 1", ("tuned: measured 2 ms",))
    assert lines_of([done])[1:] == ["    tuned: measured 2 ms"]
    old = row_of(projected, ended(77, "dpbench project mlp/small", "elsewhere run: python"), 1.0, Path("out"))
    assert (old.outcome, old.lines) == ("skipped", ("dpbench project mlp/small",))
    assert row_of(projected, ended(1, "boom"), 1.0, Path("out")).outcome == "failed"


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([Outcome.PASSED], 0),
        ([Outcome.PASSED, Outcome.CUT], 3),
        ([Outcome.SKIPPED], 3),
        ([Outcome.NOT_STARTED], 3),
        ([Outcome.CUT, Outcome.FAILED, Outcome.PASSED], 1),
    ],
)
def test_the_exit_code_shows_what_did_not_pass(outcomes, code):
    assert code_of([Row("step", outcome) for outcome in outcomes]) == code


def test_a_skipped_optional_step_is_no_gap(tmp_path):
    *_, projected = steps_of(Place("cuda", 1), Work(), tmp_path)
    skipped = row_of(projected, ended(77, "elsewhere run: python"), 1.0, tmp_path)
    assert (skipped.outcome, code_of([Row("tests", Outcome.PASSED), skipped])) == ("skipped", 0)
    assert code_of([row_of(projected, ended(-2, is_cut=True), 1.0, tmp_path)]) == 3
    assert code_of([row_of(projected, ended(1, "boom"), 1.0, tmp_path)]) == 1


def test_a_summary_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    write_summary(path, {}, [Row("a")], None)
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        write_summary(path, {}, [Row("a", Outcome.PASSED)], 0)
    assert json.loads(path.read_text())["exit_code"] is None


def value_of(step, option):
    return step.arguments[step.arguments.index(option) + 1]


def compared(count, work=None):
    steps = steps_of(Place("cuda", count), work or Work(), Path("out"))
    return {step.name: step for step in steps if step.kind is Kind.COMPARISON}


def test_one_gpu_is_shared_by_one_two_and_four_lanes():
    steps = compared(1)
    assert list(steps) == ["launch_bound", "ahead", "compute_bound"]
    assert value_of(steps["launch_bound"], "--devices") == "cuda:0,cuda:0+cuda:0,cuda:0+cuda:0+cuda:0+cuda:0"
    assert {lanes for variant, lanes in steps["launch_bound"].wanted if variant == "ddp"} == {("cuda:0",)}
    assert value_of(steps["ahead"], "--steps-per-sample") == "20"
    assert value_of(steps["ahead"], "--variants") == "torch_dp,tuned"


def names(steps):
    return [step.name for step in steps]


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_all_is_planned_where_it_fits_and_nothing_is_lost(count):
    place = Place("cuda", count)
    full = steps_of(place, Work(), Path("out"))
    assert fitted(place, Work(), Path("out"), needed_s(full)) == full
    assert lost(full, full) == []


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_what_does_not_fit_is_left_out_and_named(count):
    """The default leaves about 530 s after two start-ups."""
    place, out = Place("cuda", count), Path("out")
    full, steps = steps_of(place, Work(), out), fitted(place, Work(), out, 530.0)
    assert needed_s(full) > 530 >= needed_s(steps)
    missing = lost(full, steps)
    assert set(names(full)) - set(names(steps)) == {name for name in missing if " " not in name}
    assert {"tests", "races", "doctor"} <= {*names(steps)}


def test_steps_are_left_out_in_the_stated_order():
    one, several = ([*reductions(Place("cuda", count), Work())] for count in (1, 8))

    def lost_by(works, count):
        place = Place("cuda", count)
        plans = [steps_of(place, work, Path("out")) for work in works]
        return [lost(before, after) for before, after in pairwise(plans)]

    fewer, *rest = lost_by(several, 8)
    assert fewer == ["launch_bound", "compute_bound"]
    assert {case.rpartition(" on ")[2] for case in rest[0]} == {"4"}
    order = [["telemetry"], ["machine", "projected"], ["several_compute_bound"], ["ahead"]]
    assert [each for each in rest if " " not in each[0]] == order
    first, second, third, *_ = lost_by(one, 1)
    assert first == ["telemetry"]
    assert second == [f"launch_bound {variant} on 4" for variant in ("floor", "naive", "torch_dp", "tuned", GRAPHS)]
    assert {case.split()[1] for case in third} == {"floor", "naive"}


def test_a_comparison_needs_more_with_each_lane_and_rank_and_with_the_start_up():
    def needs(count=2, **changed):
        work = replace(Work(variants=("tuned",)), **changed)
        return next(
            step for step in steps_of(Place("cuda", count), work, Path("out")) if "compute" in step.name
        ).needs_s

    assert needs(1, start_s=8.0) == pytest.approx(8 + 2 * (8 + 4.2 + 4.4))
    assert needs(4) - needs(2) == pytest.approx(2 * 4.8)
    assert needs(start_s=9.0) - needs(start_s=8.0) == pytest.approx(3)
    ranks = needs(variants=("ddp",)) - needs()
    assert ranks == pytest.approx(2 * (8 + 2 * 1.0))


@pytest.mark.parametrize(("count", "lanes"), [(2, [2]), (3, [2, 3]), (4, [2, 4]), (8, [2, 4, 8]), (6, [2, 4, 6])])
def test_several_gpus_are_used_by_all_variants_with_a_gpu_for_each_lane(count, lanes):
    assert doubling(count) == lanes
    steps = compared(count)
    assert list(steps)[:2] == ["several_launch_bound", "several_compute_bound"]
    apart = [parse_devices(f"cuda*{each}") for each in lanes]
    for name in list(steps)[:2]:
        step = steps[name]
        assert [parse_devices(text) for text in value_of(step, "--devices").split(",")] == apart
        assert {variant for variant, _ in step.wanted} == {*SCHEMES, *([GRAPHS] if "launch" in name else [])}
        assert {where for variant, where in step.wanted if variant == "ddp"} == set(apart)
        assert int(value_of(step, "--batch")) >= count
    assert parse_devices(value_of(steps["ahead"], "--devices")) == apart[-1]


@pytest.mark.parametrize(("kind", "sanitizer", "device"), [("cuda", "1", None), ("cpu", None, "cpu")])
def test_races_run_under_the_sanitizer_that_torch_has_with_cuda(kind, sanitizer, device):
    _, races, *_ = steps_of(Place(kind, 2), Work(), Path("out"))
    assert races.environment.get("TORCH_CUDA_SANITIZER") == sanitizer
    assert races.environment["CUDA_DEVICE_MAX_CONNECTIONS"] == "8"
    assert races.environment.get("DPBENCH_GPU_TESTS_ON") == device


@pytest.mark.parametrize("place", [Place("cuda", 1), Place("cuda", 8), Place("cpu", 2)])
@pytest.mark.parametrize("is_rehearsal", [False, True])
def test_every_command_is_one_that_dpbench_and_pytest_take(place, is_rehearsal):
    """A lent machine brings back at most 8 files."""
    work = rehearsed(Work()) if is_rehearsal else Work()
    steps = steps_of(place, work, Path("out"))
    for step in steps:
        assert all((ROOT / word).exists() for word in step.arguments if word.startswith("tests/"))
    comparisons = [step for step in steps if step.kind is Kind.COMPARISON]
    for step in comparisons:
        words = [word.replace("{budget}", "5") for word in step.arguments[3:]]
        options = dict(zip(words[::2], words[1::2], strict=True))
        assert options.pop("--results") == f"out/{step.name}"
        from_options({name.removeprefix("--").replace("-", "_"): value for name, value in options.items()})
    assert len(["output.txt", "summary.json", MACHINE_FILE, *comparisons]) <= 8
    assert len({step.name for step in steps}) == len(steps)
