"""A real sweep, stopped: records whole, children gone, and the next call goes on."""

import json
import os
import signal
import subprocess
import sys
import uuid

import pytest

from tests.cli.conftest import ROOT
from tests.engine.conftest import marked_processes, wait_until

SPEC = """
variants = ["ddp"]
workloads = ["mlp/tiny"]
batch = [16]
devices = ["cpu*2"]
rounds = 2
case_time = 0.3
"""
CASES = 2  # with the single-device baseline


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "my.toml").write_text(SPEC)
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "GIT_DIR": str(tmp_path / "none"),
        "DPBENCH_TEST_MARK": uuid.uuid4().hex,
    }


def start(folder, environment):
    command = [sys.executable, "-m", "dpbench", "sweep", "my.toml", "--json"]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def lines(folder):
    files = list(folder.glob("results/runs/*.jsonl"))
    return files[0].read_bytes().splitlines(keepends=True) if files else []


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -signal.SIGKILL), pytest.param(signal.SIGINT, 130, marks=pytest.mark.exhaustive)],
)
def test_stopped_in_the_middle_and_started_again(tmp_path, environment, number, code):
    mark = environment["DPBENCH_TEST_MARK"]
    sweep = start(tmp_path, environment)
    wait_until(lambda: len(lines(tmp_path)) >= 1)
    wait_until(lambda: len(marked_processes(mark)) >= 2)  # the next child runs
    sweep.send_signal(number)
    printed, errors = sweep.communicate()
    assert sweep.returncode == code
    wait_until(lambda: not marked_processes(mark))
    before = lines(tmp_path)
    assert all(line.endswith(b"\n") for line in before)
    assert len(before) < CASES * 2
    if number == signal.SIGINT:
        kept = f"dpbench: {len(before)} of {CASES * 2} measurements are kept; repeat the command to go on\n"
        assert errors.endswith(f"{kept}dpbench: interrupted; what was recorded so far is kept\n")
        finished = {record["case"]["id"] for record in map(json.loads, before)}
        assert {row["id"] for row in json.loads(printed)["cases"] if row["outcome"] == "ok"} == finished

    again = start(tmp_path, environment)
    printed, errors = again.communicate()
    assert again.returncode == 0, errors
    after = lines(tmp_path)
    assert after[: len(before)] == before
    keys = [(record["case"]["id"], record["round"]) for record in map(json.loads, after)]
    assert len(keys) == len(set(keys)) == CASES * 2
    assert {row["outcome"] for row in json.loads(printed)["cases"]} == {"ok"}
    assert not marked_processes(mark)


def test_a_finished_sweep_measures_nothing_again_but_what_was_torn(tmp_path, environment):
    (tmp_path / "my.toml").write_text(SPEC.replace("ddp", "single").replace("rounds = 2", "rounds = 1"))
    assert start(tmp_path, environment).wait() == 0
    whole = lines(tmp_path)
    assert start(tmp_path, environment).wait() == 0
    assert lines(tmp_path) == whole
    file = next(tmp_path.glob("results/runs/*.jsonl"))
    file.write_bytes(b"".join(whole)[:-7])
    sweep = start(tmp_path, environment)
    _, errors = sweep.communicate()
    assert sweep.returncode == 0
    assert b"torn" in errors
    assert len(lines(tmp_path)) == len(whole)
