"""Every test here must leave no process behind."""

import os
import time
import uuid
from pathlib import Path

import pytest

_MARK = "DPBENCH_TEST_MARK"


def marked_processes(mark: str) -> dict[int, str]:
    """Pid and command of each process that carries the mark in its environment, zombies aside.

    A mark is inherited across sessions, groups and dead parents; this process, whose environment was
    changed after it began, does not show it.
    """
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


def wait_until(condition, deadline_s=30.0):
    """Wait for a condition that must come; the deadline only ends a test that fails."""
    end_s = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < end_s, "it did not come"
        time.sleep(0.02)
    return value


@pytest.fixture(autouse=True)
def mark(monkeypatch):
    mark = uuid.uuid4().hex
    monkeypatch.setenv(_MARK, mark)
    yield mark
    left = marked_processes(mark)
    for pid in left:
        os.kill(pid, 9)
    assert not left
