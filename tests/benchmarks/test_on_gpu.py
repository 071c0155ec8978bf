"""The checks for a machine with a GPU, as far as they run without one."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from benchmarks import on_gpu
from benchmarks.on_gpu import Step, chosen, run_all, steps_of

ROOT = Path(__file__).parents[2]


def python(name, code, **options):
    return Step(name, ("-c", code), 1, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here; make gpu would run")
def test_without_a_gpu_it_reports_that_and_writes_nothing(tmp_path):
    out = tmp_path / "out"
    command = ["make", "gpu", f"PYTHON={sys.executable}", f"ARGS=--out {out}"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    message = f"gpu: {sys.executable}: torch {torch.__version__} sees no CUDA device; nothing was run"
    assert done.stderr.splitlines()[0] == message
    assert not out.exists()


def test_steps_run_after_a_failed_one_and_the_output_is_kept(tmp_path, capfd):
    steps = [
        python("one", "print('here', '{budget}'); raise SystemExit(1)"),
        python("two", "import os; print(os.environ['X'])", environment={"X": "x"}),
    ]
    assert list(run_all(steps, os.environ, tmp_path, 20.0)) == [("one", 1), ("two", 0)]
    assert (tmp_path / "one.txt").read_text() == "here 7\n"
    assert (tmp_path / "two.txt").read_text() == "x\n"
    assert "one failed with 1" in capfd.readouterr().out


@pytest.mark.parametrize(("code", "end"), [("pass", 1), ("import signal; signal.signal(2, signal.SIG_IGN)", -9)])
def test_a_step_is_interrupted_at_its_limit_and_then_killed(code, end, tmp_path, monkeypatch):
    monkeypatch.setattr(on_gpu, "GRACE_S", 0.5)
    hang = f"import time; {code}; print('begun', flush=True)\ntry: time.sleep(60)\nexcept KeyboardInterrupt: exit(1)"
    assert list(run_all([python("hang", hang)], os.environ, tmp_path, 2.0)) == [("hang", end)]
    assert (tmp_path / "hang.txt").read_text() == "begun\n"


def test_a_step_dies_with_the_process_that_started_it(tmp_path):
    """At a time limit only the command itself is killed.

    A step left over would share the GPU with the next.
    """
    hang = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    step = f"Step('hang', ('-c', {hang!r}), 1)"
    run = f"list(run_all([{step}], os.environ, Path({str(tmp_path)!r}), 60.0))"
    code = f"import os\nfrom pathlib import Path\nfrom benchmarks.on_gpu import Step, run_all\n{run}"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout.readline().startswith("gpu: hang")
        hanging = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    hanging.wait(10)


def test_steps_are_chosen_by_name(tmp_path):
    steps = steps_of(tmp_path, 2)
    assert [step.name for step in chosen(steps, "races,tests")] == ["tests", "races"]
    assert chosen(steps, None) == steps
    command = [sys.executable, "benchmarks/on_gpu.py", "--steps", "test", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpu: steps: test; allowed: tests, races, ")
    assert not (tmp_path / "out").exists()


def test_importing_the_gpu_tests_does_not_import_the_sanitizer():
    """The import alone makes torch walk up the stack at each allocation."""
    code = "import sys, tests.gpu.test_streams\nsys.exit('torch.cuda._sanitizer' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_CUDA_SANITIZER"}
    subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, env=environment | {"DPBENCH_GPU_TESTS_ON": "cpu"}
    )


def test_the_tests_that_steps_run_exist():
    """A text for each step and the records of each comparison are at most 8 files."""
    steps = steps_of(Path("out"), 2)
    for step in steps:
        assert all((ROOT / word).exists() for word in step.arguments if word.startswith("tests/"))
    assert len(steps) + sum("compare" in step.arguments for step in steps) <= 8
