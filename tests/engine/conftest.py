"""A fixture that fails each test of this folder that leaves a process behind."""

import os
import time
import uuid
from pathlib import Path

import pytest

_MARK = "DPBENCH_TEST_MARK"


def marked_processes(mark: str) -> dict[int, str]:
    """Return pid and command of each process that carries the mark, without zombies.

    A mark is inherited across sessions, groups and dead parents. This process does not show it, because its environment
    was changed after its start.
    """
    commands = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                commands[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return commands


def wait_until(condition, deadline_s=120.0):
    """Wait until `condition` is true and return its value. After the deadline the test fails."""
    end_s = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < end_s, "the condition did not become true"
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
