"""A sweep stopped in the middle loses no record, repeats none, and leaves no process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dpbench.records.record import Outcome, Record
from tests.engine.conftest import marked_processes, wait_until

ROOT = Path(__file__).parents[2]
SWEEP = [sys.executable, str(Path(__file__).parent / "children" / "sweep.py")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def records(folder):
    text = (folder / "records.jsonl").read_text()
    assert text.endswith("\n")
    return [Record.model_validate_json(line) for line in text.splitlines()]


def stop_in_the_middle(folder, mark, signal_number):
    """Send the signal to a sweep while a child and its rank hang. Return the sweep's exit code."""
    (folder / "hang").touch()
    parent = subprocess.Popen(SWEEP)
    wait_until((folder / "hanging").exists)
    assert len(marked_processes(mark)) == 4  # the parent, the process of the round, the child, its rank
    parent.send_signal(signal_number)
    return parent.wait()


def resume(folder):
    (folder / "hang").unlink()
    before = (folder / "records.jsonl").read_bytes()
    subprocess.run(SWEEP, check=True)
    assert (folder / "records.jsonl").read_bytes().startswith(before)
    resumed = records(folder)
    assert sorted(record.round for record in resumed) == [0, 0, 1, 1, 2, 2]
    assert len({record.key for record in resumed}) == 6
    assert {record.outcome for record in resumed} == {Outcome.OK}


def test_killed_by_sigkill(folder, mark):
    assert stop_in_the_middle(folder, mark, signal.SIGKILL) == -signal.SIGKILL
    wait_until(lambda: not marked_processes(mark))  # the kernel ends each process after its parent
    assert len(records(folder)) == 2
    resume(folder)


def test_ctrl_c(folder, mark):
    assert stop_in_the_middle(folder, mark, signal.SIGINT) == 130
    assert not marked_processes(mark)
    assert len(records(folder)) == 2
    resume(folder)


def test_ctrl_c_in_a_terminal_reaches_the_parent_only(folder, mark):
    """A terminal signals its whole foreground group. A child in that group would end and leave a failed record."""
    (folder / "hang").touch()
    parent = subprocess.Popen(SWEEP, process_group=0)
    wait_until((folder / "hanging").exists)
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.wait() == 130
    assert len(records(folder)) == 2
