"""The command `make gpu`, as far as it runs without a GPU."""

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from benchmarks import gpu_run, on_gpu
from benchmarks.gpu_run import allowance, run
from benchmarks.gpu_steps import Kind, Place, Step, Work, steps_of
from benchmarks.on_gpu import CannotStartError, chosen, plan_lines, prepare, run_all

ROOT = Path(__file__).parents[2]
needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here; make gpu would use it")


def python(name, code, **options):
    return Step(name, ("-c", code), **{"needs_s": 1.0, **options})


def ran(steps, out, seconds=20.0):
    """Run the steps. Return the exit code, what was said, and the rows of the summary by name."""
    said = []
    code = run_all(steps, os.environ, out, seconds, {"place": "here"}, said.append)
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["schema"], summary["place"], summary["exit_code"]) == (1, "here", code)
    assert [path.name for path in out.iterdir()] == ["summary.json"]
    return code, "".join(said), {row["name"]: row for row in summary["steps"]}


def command(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.on_gpu", *map(str, words)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        **options,
    )


@needs_no_gpu
def test_without_a_gpu_it_reports_that_and_writes_nothing(tmp_path):
    out = tmp_path / "out"
    make = ["make", "gpu", f"PYTHON={sys.executable}", f"ARGS=--out {out}"]
    done = subprocess.run(make, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    message = f"gpu: {sys.executable}: torch {torch.__version__} sees no CUDA device; nothing was run"
    assert done.stderr.splitlines()[0] == message
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--steps", "test"], "gpu: steps: test; allowed: tests, races, "),
        (["--steps", ""], "gpu: steps: ; allowed: tests, races, "),
        (["--variants", "tuned,tunde"], "gpu: variants: tunde; allowed: single, torch_dp, "),
        (["--minutes", "0"], "gpu: argument --minutes: '0'; allowed: a number above 0"),
        (["--minutes", "nan"], "gpu: argument --minutes: 'nan'; allowed: a number above 0"),
        (["--minutes", "soon"], "gpu: argument --minutes: 'soon'; allowed: a number above 0"),
        (["--rounds", "1.5"], "gpu: argument --rounds: '1.5'; allowed: a number above 0"),
        (["--rounds", "-1"], "gpu: argument --rounds: '-1'; allowed: a number above 0"),
        (["--rehears"], "gpu: unrecognized arguments: --rehears"),
    ],
)
def test_a_wrong_option_is_one_line_and_nothing_is_written(tmp_path, words, line):
    done = command("--out", tmp_path / "out", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(line)
    assert done.stderr.endswith("; nothing was run\n")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_results_of_two_runs_do_not_mix(tmp_path):
    (tmp_path / "old.txt").write_text("old")
    (tmp_path / "file").write_text("old")
    for out in (tmp_path, tmp_path / "file"):
        done = command("--out", out)
        assert done.returncode == 2
        assert done.stderr == f"gpu: out: {out} is not empty; allowed: a new or an empty folder; nothing was run\n"
    assert {path.name for path in tmp_path.iterdir()} == {"old.txt", "file"}


def test_steps_run_after_a_failed_one_and_the_output_is_passed_on(tmp_path):
    steps = [
        python("one", "print('here', '{budget}'); raise SystemExit(1)"),
        python("two", "import os; print(os.environ['X'])", environment={"X": "x"}),
        python("three", "raise SystemExit(1)", passing=(0, 1)),
    ]
    code, said, rows = ran(steps, tmp_path, 30.0)
    assert code == 1
    assert {name: (row["outcome"], row["note"], row["exit_code"]) for name, row in rows.items()} == {
        "one": ("failed", "exit code 1; here 9", 1),
        "two": ("passed", "x", 0),
        "three": ("passed", "", 1),
    }
    assert "here 9\ngpu: one failed: exit code 1; here 9\n" in said
    assert re.search(r"^gpu: two +passed +\d+ s  x$", said, re.MULTILINE)


def test_the_summary_says_what_is_not_started_while_the_first_step_runs(tmp_path):
    code = (
        f"import json; print([row['outcome'] for row in json.load(open({str(tmp_path / 'summary.json')!r}))['steps']])"
    )
    _, _, rows = ran([python("one", code), python("two", "pass")], tmp_path)
    assert (rows["one"]["outcome"], rows["one"]["note"]) == ("passed", "['not started', 'not started']")


@pytest.mark.parametrize(("code", "end"), [("pass", 1), ("import signal; signal.signal(2, signal.SIG_IGN)", -9)])
def test_a_step_whose_time_is_up_is_cut_and_not_failed(code, end, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_run, "GRACE_S", 0.5)
    hang = f"import time; {code}; print('begun', flush=True)\ntry: time.sleep(60)\nexcept KeyboardInterrupt: exit(1)"
    exit_code, said, rows = ran([python("hang", hang), python("next", "pass")], tmp_path, 8.0)
    row = rows["hang"]
    assert (row["outcome"], row["note"], row["exit_code"]) == ("cut", "its time was up; begun", end)
    assert row["limit_s"] <= row["seconds"] < 8
    assert "begun\n" in said
    assert rows["next"]["outcome"] == "passed"
    assert exit_code == 3


def test_a_step_can_be_cut_if_the_command_runs_in_the_background(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        hang = "import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: exit(1)"
        _, _, rows = ran([python("hang", hang)], tmp_path, 4.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (rows["hang"]["outcome"], rows["hang"]["exit_code"]) == ("cut", 1)


def test_an_interrupt_ends_with_a_summary_of_what_was_not_run(tmp_path):
    hang = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)"
    before = signal.getsignal(signal.SIGTERM)
    code, said, rows = ran([python("done", "pass"), python("hang", hang), python("later", "pass")], tmp_path)
    assert code == 130
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "done": "passed",
        "hang": "cut",
        "later": "not started",
    }
    assert "interrupted" in said
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_step_dies_with_the_process_that_started_it(tmp_path):
    """At a time limit only the command itself is killed.

    A step left over would share the GPU with the next. The summary then has no exit code.
    """
    hang = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    steps = f"[Step('first', ('-c', ''), 1.0), Step('hang', ('-c', {hang!r}), 1.0)]"
    say = "lambda text: print(text, end='', flush=True)"
    code = (
        "import os\nfrom pathlib import Path\nfrom benchmarks.on_gpu import Step, run_all\n"
        f"run_all({steps}, os.environ, Path({str(tmp_path)!r}), 60.0, {{}}, {say})"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:
        assert [starter.stdout.readline().split(",")[0] for _ in range(3)][-1] == "gpu: hang"
        hanging = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    hanging.wait(10)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["exit_code"] is None
    assert [step["outcome"] for step in summary["steps"]] == ["passed", "not started"]


@pytest.mark.parametrize("left_s", [10.0, 100.0, 500.0])
def test_a_step_may_use_all_but_what_the_later_ones_need(left_s):
    needs_s = [40.0, 10.0, 50.0]
    found = allowance(needs_s, left_s)
    assert found.share_s == pytest.approx(0.4 * left_s)
    assert found.limit_s == pytest.approx(left_s - 60 if left_s >= 100 else 0.4 * left_s)
    assert allowance([7.0], left_s).limit_s == left_s


def test_the_output_of_a_step_is_read_while_it_runs(tmp_path):
    seen = []
    lines = "import time\nfor i in range(100): print(i)\nprint('last')"
    end = run(python("lines", lines), os.environ, allowance([1.0], 20.0), seen.append)
    assert seen == [*(f"{i}\n" for i in range(100)), "last\n"]
    assert (end.exit_code, end.is_cut, end.tail[-2:]) == (0, False, ("99", "last"))
    assert len(end.tail) < 100


def wheel(folder, module, text):
    """Write a wheel of one module."""
    facts = f"{module}-1.dist-info"
    with zipfile.ZipFile(folder / f"{module}-1-py3-none-any.whl", "w") as file:
        file.writestr(f"{module}.py", text)
        file.writestr(f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
        file.writestr(
            f"{facts}/WHEEL", "Wheel-Version: 1.0\nGenerator: here\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{facts}/RECORD", "")


def test_wheels_are_used_and_a_module_that_cannot_be_imported_is_named(tmp_path, monkeypatch):
    site, wheels = tmp_path / "site", tmp_path / "wheels"
    monkeypatch.setattr(on_gpu, "SITE", site)
    monkeypatch.setattr(on_gpu, "MODULES", ("rich", "typer"))
    environment = os.environ | {"PYTHONPATH": str(site)}
    wheels.mkdir()
    wheel(wheels, "rich", "")
    assert prepare(wheels, environment) > 0
    assert (site / "rich.py").exists()
    wheel(wheels, "typer", "raise RuntimeError('numpy is too old')")
    with pytest.raises(CannotStartError, match=r"cannot import typer \(RuntimeError\).*make gpu-wheels"):
        prepare(wheels, environment)
    (wheels / "broken-1-py3-none-any.whl").write_text("no wheel")
    with pytest.raises(CannotStartError, match="cannot be installed"):
        prepare(wheels, environment)


def test_all_wheels_are_fetched_that_the_steps_import():
    target = re.search(r"^gpu-wheels:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    names = re.search(r"lock\.py (.*) >", target)[1].split()
    done = subprocess.run([sys.executable, ".ci/lock.py", *names], cwd=ROOT, check=True, capture_output=True, text=True)
    fetched = set(re.findall(r"^([\w.-]+)==", done.stdout, re.MULTILINE))
    packages = {name.partition(".")[0].replace("_", "-") for name in on_gpu.MODULES} - {"torch", "pynvml"}
    assert packages | {"nvidia-ml-py"} <= fetched


def test_importing_the_gpu_tests_does_not_import_the_sanitizer():
    """The import alone makes torch walk up the stack at each allocation."""
    code = "import sys, tests.gpu.test_streams\nsys.exit('torch.cuda._sanitizer' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_CUDA_SANITIZER"}
    subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, env=environment | {"DPBENCH_GPU_TESTS_ON": "cpu"}
    )


def test_the_plan_names_what_is_left_out_and_the_minutes_that_hold_all(tmp_path):
    full = [python("one", "", needs_s=300.0), python("two", "", needs_s=120.0)]
    assert plan_lines(full, full, 9.0, 430.0) == ["2 steps need about 420 s; 430 s of 9 minutes are left"]
    assert plan_lines(full, full[:1], 6.0, 330.0) == [
        "1 steps need about 300 s; 330 s of 6 minutes are left",
        "left out, because it does not fit: two; --minutes 8 hold all",
    ]


def test_the_minutes_include_what_was_done_before_the_first_step(tmp_path, monkeypatch):
    """The process began 500 s before, and so 55 of 555 s are left."""
    planned = {}
    monkeypatch.setattr(sys, "argv", ["on_gpu", "--out", str(tmp_path / "out")])
    monkeypatch.setattr(on_gpu, "find_place", lambda *_, **__: Place("cuda", 1))
    monkeypatch.setattr(on_gpu, "prepare", lambda *_: 8.0)
    moments = iter([0.0, *[500.0] * 9])
    monkeypatch.setattr(on_gpu, "time", SimpleNamespace(monotonic=lambda: next(moments)))

    def run_all(steps, _environment, _out, *rest):
        seconds, facts, _say = rest
        planned.update(facts, steps=[step.name for step in steps], seconds=seconds)
        return 0

    monkeypatch.setattr(on_gpu, "run_all", run_all)
    assert on_gpu.main() == 0
    assert planned["seconds"] == pytest.approx(55)
    assert planned["steps"] == ["tests", "races", "doctor", "launch_bound"]
    assert {"telemetry", "machine", "projected", "compute_bound", "ahead"} <= set(planned["left_out"])
    assert "left out, because it does not fit: telemetry, " in (tmp_path / "out" / "output.txt").read_text()


def test_steps_are_chosen_by_name(tmp_path):
    steps = steps_of(Place("cuda", 1), Work(), tmp_path)
    assert [step.name for step in chosen(steps, "races,tests")] == ["tests", "races"]
    assert chosen(steps, None) == steps
    with pytest.raises(CannotStartError, match="steps: several_launch_bound; allowed: tests, races, doctor"):
        chosen(steps, "several_launch_bound")


@needs_no_gpu
@pytest.mark.exhaustive
@pytest.mark.timeout(1500)
def test_a_rehearsal_runs_every_step_from_start_to_end(tmp_path):
    """Two variants only, to be quick. The comparisons of stock and tuned are complete on GPUs alone."""
    out = tmp_path / "out"
    done = command("--rehearse", "--variants", "floor,ddp", "--out", out, "--wheels", tmp_path, timeout=1400)
    summary = json.loads((out / "summary.json").read_text())
    rows = {row["name"]: row for row in summary["steps"]}
    assert (done.returncode, summary["exit_code"], done.stderr) == (3, 3, ""), done.stdout[-3000:]
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "tests": "passed",
        "races": "passed",
        "doctor": "passed",
        "telemetry": "skipped",
        "several_launch_bound": "passed",
        "several_compute_bound": "passed",
        "launch_bound": "passed",
        "ahead": "skipped",
        "compute_bound": "passed",
        "machine": "skipped",
        "projected": "skipped",
    }
    assert "there is nothing to describe; lanes of the CPU cannot be projected" in rows["machine"]["note"]
    assert "the step `machine` says why" in rows["projected"]["note"]
    assert re.fullmatch(r"\d+ passed, \d+ skipped in .*", rows["tests"]["note"])
    assert "has no CUDA device" in rows["telemetry"]["note"]
    assert rows["ahead"]["note"] == "2 records, no times of torch_dp on cpu+cpu"
    assert "there is telemetry of NVIDIA's GPUs alone" in str(rows["launch_bound"]["busy_percent"])
    (ahead,) = (out / "ahead").glob("*.jsonl")
    assert {json.loads(line)["case"]["steps_per_sample"] for line in ahead.read_text().splitlines()} == {20}
    compared = [step.name for step in steps_of(Place("cpu", 2), Work(), out) if step.kind is Kind.COMPARISON]
    assert {path.name for path in out.iterdir()} == {"output.txt", "summary.json", *compared}
    assert (out / "output.txt").read_text() == done.stdout
    for name, row in rows.items():
        assert re.search(rf"^gpu: {name} +{row['outcome']} ", done.stdout, re.MULTILINE)
