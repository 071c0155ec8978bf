"""The command `make gpu`, as far as it runs without a GPU."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from benchmarks.instruments import on_gpu
from benchmarks.instruments.gpu_summary import Step
from benchmarks.instruments.on_gpu import CannotStartError, Plan, failed_tests, placed, prepare, run, run_all, steps_of

ROOT = Path(__file__).parents[2]
needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here; make gpu would use it")


def python(name, code, limit_s=20.0, **options):
    return Step(name, (sys.executable, "-c", code), limit_s, **options)


def ran(steps, out, seconds=60.0):
    """Run the steps. Return the exit code, what was said, and the rows of the summary by name."""
    said = []
    code = run_all(steps, dict(os.environ), out, time.monotonic() + seconds, {"place": "here"}, said.append)
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["schema"], summary["place"], summary["exit_code"]) == (2, "here", code)
    return code, "".join(said), {row["name"]: row for row in summary["steps"]}


def command(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.instruments.on_gpu", *map(str, words)],
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
    ("words", "text"),
    [
        (["--call", "4"], "argument --call: invalid choice: '?4'?"),
        (["--rehears"], "unrecognized arguments: --rehears"),
        (["--call", "1", "--failed", "tests/gpu/test_step.py"], "--failed needs --call 2"),
        (["--call", "2", "--failed", "pyproject.json"], "No such file or directory: 'pyproject.json'; nothing was run"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_written(tmp_path, words, text):
    done = command("--out", tmp_path / "out", "--wheels", tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(text, done.stderr.splitlines()[-1])
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
        python("one", "print('here'); raise SystemExit(1)"),
        python("two", "import os; print(os.environ['X'])", environment={"X": "x"}),
        python("three", "raise SystemExit(1)", passing=(0, 1)),
    ]
    code, said, rows = ran(steps, tmp_path)
    assert code == 1
    assert {name: (row["outcome"], row["note"], row["exit_code"]) for name, row in rows.items()} == {
        "one": ("failed", "exit code 1; here", 1),
        "two": ("passed", "x", 0),
        "three": ("passed", "", 1),
    }
    assert "here\ngpu: one failed: exit code 1; here\n" in said
    assert re.search(r"^gpu: two +passed +\d+ s  x$", said, re.MULTILINE)


def test_the_summary_says_what_is_not_started_while_the_first_step_runs(tmp_path):
    code = (
        f"import json; print([row['outcome'] for row in json.load(open({str(tmp_path / 'summary.json')!r}))['steps']])"
    )
    _, _, rows = ran([python("one", code), python("two", "pass")], tmp_path)
    assert (rows["one"]["outcome"], rows["one"]["note"]) == ("passed", "['not started', 'not started']")


@pytest.mark.parametrize(("code", "end"), [("pass", 1), ("import signal; signal.signal(2, signal.SIG_IGN)", -9)])
def test_a_step_whose_time_is_up_is_cut_and_not_failed(code, end, tmp_path, monkeypatch):
    monkeypatch.setattr(on_gpu, "GRACE_S", 0.5)
    hang = f"import time; {code}; print('begun', flush=True)\ntry: time.sleep(60)\nexcept KeyboardInterrupt: exit(1)"
    exit_code, said, rows = ran([python("hang", hang, 3.0), python("next", "pass")], tmp_path)
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
        _, _, rows = ran([python("hang", hang, 3.0)], tmp_path)
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
    steps = f"[Step('first', ('true',), 9.0), Step('hang', (sys.executable, '-c', {hang!r}), 60.0)]"
    say = "lambda text: print(text, end='', flush=True)"
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom benchmarks.instruments.on_gpu import Step, run_all\n"
        f"run_all({steps}, dict(os.environ), Path({str(tmp_path)!r}), float('inf'), {{}}, {say})"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:
        assert [starter.stdout.readline().split(",")[0] for _ in range(3)][-1] == "gpu: hang"
        hanging = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    hanging.wait(10)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["exit_code"] is None
    assert [step["outcome"] for step in summary["steps"]] == ["passed", "not started"]


def test_a_step_that_does_not_fit_is_named_and_a_step_at_the_end_gets_the_rest(tmp_path):
    steps = [
        python("fits", "import time; time.sleep(60)", 50.0),
        python("late", "pass", 30.0),
        python("short", "pass", 2),
    ]
    code, said, rows = ran(steps, tmp_path, on_gpu.LEAST_S + 2)
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "fits": "cut",
        "late": "not started",
        "short": "not started",
    }
    assert on_gpu.LEAST_S < rows["fits"]["limit_s"] <= on_gpu.LEAST_S + 2
    assert re.search(r"^gpu: late +not started +0 s  no time was left$", said, re.MULTILINE)
    assert code == 3


def test_a_step_leaves_records_but_no_page(tmp_path):
    (tmp_path / "compared").mkdir()
    pages = f"for name in ('x.jsonl', 'x.html'): open({str(tmp_path / 'compared')!r} + '/' + name, 'w').close()"
    ran([python("compared", pages)], tmp_path)
    assert {path.name for path in tmp_path.rglob("*")} == {"summary.json", "compared", "x.jsonl"}


def test_the_output_of_a_step_is_read_while_it_runs(tmp_path):
    seen = []
    lines = "import time\nfor i in range(100): print(i)\nprint('last')"
    end = run(python("lines", lines), os.environ, 20.0, seen.append)
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
    environment = os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    wheels.mkdir()
    wheel(wheels, "rich", "")
    machine = prepare(wheels, environment, ("rich", "typer"))
    assert (machine["lacking"], machine["torch"]) == ([], torch.__version__)
    assert (site / "rich.py").exists()
    wheel(wheels, "typer", "raise RuntimeError('numpy is too old')")
    with pytest.raises(CannotStartError, match=r"cannot import typer \(RuntimeError\).*make gpu-wheels"):
        prepare(wheels, environment, ("rich", "typer"))
    (wheels / "broken-1-py3-none-any.whl").write_text("no wheel")
    with pytest.raises(CannotStartError, match="cannot be installed"):
        prepare(wheels, environment)


def test_only_small_wheels_are_fetched_and_they_have_all_that_they_need():
    names = re.search(r"^GPU_NEEDS \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    done = subprocess.run([sys.executable, ".ci/lock.py", *names], cwd=ROOT, check=True, capture_output=True, text=True)
    fetched = set(re.findall(r"^([\w.-]+)==", done.stdout, re.MULTILINE))
    assert {"pydantic", "pydantic-core", "annotated-types", "typing-inspection", "rich"} <= fetched
    assert not fetched & {"scipy", "numpy", "torch"}


def test_tests_run_on_six_workers_at_most_and_in_one_process_without_xdist(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    plan, machine = Plan(0, Path("out")), {"torch": "2.11", "devices": 1, "has_xdist": True}
    assert placed(plan, machine).on_workers == ("-p", "xdist", "--numprocesses", "6")
    assert placed(plan, machine | {"has_xdist": False}).on_workers == ()
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert placed(plan, machine).on_workers[-1] == "2"


@pytest.mark.parametrize(("call", "left_s"), [("1", 400 - 500), ("2", 320 - 500)])
def test_the_time_of_a_call_includes_what_was_done_before_its_first_step(tmp_path, monkeypatch, call, left_s):
    """The process began 500 s before."""
    planned = {}
    monkeypatch.setattr(sys, "argv", ["on_gpu", "--call", call, "--out", str(tmp_path / "out")])
    monkeypatch.setattr(on_gpu, "prepare", lambda *_: {"torch": "2.11", "devices": 1, "has_xdist": False})
    moments = iter([0.0, *[500.0] * 9])
    monkeypatch.setattr(on_gpu, "time", SimpleNamespace(monotonic=lambda: next(moments)))

    def run_all(steps, _environment, _out, deadline_s, facts, _say):
        planned.update(facts, names=[step.name for step in steps], deadline_s=deadline_s)
        return 0

    monkeypatch.setattr(on_gpu, "run_all", run_all)
    assert on_gpu.main() == 0
    assert planned["deadline_s"] - 500 == left_s - on_gpu.RESERVE_S
    assert (planned["start_up_s"], planned["call"]) == (500, int(call))
    assert planned["names"] == [step.name for step in steps_of(Plan(1, Path()), int(call))]
    assert "xdist cannot be imported" in (tmp_path / "out" / "output.txt").read_text()


def test_an_unknown_step_is_named_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["on_gpu", "--call", "1", "--steps", "machine", "--out", str(tmp_path / "out")])
    monkeypatch.setattr(on_gpu, "prepare", lambda *_: {"torch": "2.11", "devices": 1, "has_xdist": False})
    assert on_gpu.main() == 2
    assert capsys.readouterr().err.startswith("gpu: steps: machine; allowed: nvidia_smi, step, graphs, ")
    assert not (tmp_path / "out").exists()


def test_failed_tests_are_those_of_a_summary_or_ids(tmp_path):
    summary = tmp_path / "summary.json"
    summary.write_text(json.dumps({"steps": [{"failed": ["a::b[c d]", "e::f"]}, {"failed": ["e::f", "g::h"]}]}))
    assert failed_tests([str(summary)]) == ("a::b[c d]", "e::f", "g::h")
    assert failed_tests(["a::b", "e::f"]) == ("a::b", "e::f")
    for text in ("", "[]", '{"steps": [{}]}'):
        summary.write_text(text)
        with pytest.raises(CannotStartError, match=r"summary.json is no summary of make gpu"):
            failed_tests([str(summary)])


BREAKS = """
import torch

errors = [RuntimeError("an illegal memory access\\nmore")] * {times}

def synchronize(index):
    if errors:
        raise errors.pop()

def test_first():
    torch.cuda.device_count, torch.cuda.synchronize = lambda: 1, synchronize
    assert False

def test_second():
    pass
"""


@pytest.mark.parametrize(("times", "counts"), [(9, "1 failed, 1 error"), (1, "1 failed, 1 passed")])
def test_a_lasting_error_of_cuda_stops_the_process_and_a_passing_one_does_not(tmp_path, times, counts):
    (tmp_path / "conftest.py").write_text(
        "from tests.gpu.conftest import _seeded_and_idle_afterwards, pytest_runtest_makereport\n"
    )
    (tmp_path / "test_it.py").write_text(BREAKS.format(times=times))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(words, cwd=tmp_path, check=False, capture_output=True, text=True, env=environment)
    assert counts in done.stdout.splitlines()[-1]
    assert ("does not work any more in this process: an illegal memory access !" in done.stdout) == (times > 1)
