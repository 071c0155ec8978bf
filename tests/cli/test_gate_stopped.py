"""A gate that is stopped: no process stays, and the next gate removes its folder."""

import signal
import subprocess
import uuid

import pytest

from tests.cli.repositories import command, environment, git, make_repository
from tests.engine.conftest import marked_processes, wait_until

MARK = "DPBENCH_TEST_MARK"
AT_LEAST = 1 + 1 + 3  # the gate, the coordinator and its three sides


@pytest.fixture
def started(tmp_path):
    """Start a gate with every call, in one repository of its own."""
    folder, temporary = tmp_path / "repository", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    make_repository(folder)
    mark = uuid.uuid4().hex

    def start(*words):
        usual = ("--settings", "gate.toml", "--results", tmp_path / "results")
        return subprocess.Popen(
            command("--base", "base", *words, *usual),
            cwd=folder,
            env=environment(temporary) | {MARK: mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    yield start, lambda: marked_processes(mark), lambda: list(temporary.glob("dpbench-gate-*"))
    assert not marked_processes(mark)
    assert git(folder, "status", "--porcelain") == ""
    assert len(git(folder, "worktree", "list").splitlines()) == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_stopped_while_it_measures(started, number):
    start, processes, folders = started
    gate = start("--head", "equal", "--tiers", "1")
    wait_until(lambda: len(processes()) >= AT_LEAST)
    gate.send_signal(number)
    out, errors = gate.communicate()
    assert out == ""
    if number is signal.SIGKILL:
        assert gate.returncode == -signal.SIGKILL
        wait_until(lambda: not processes())
        assert len(folders()) == 1
        assert start("--head", "without", "--tiers", "0").wait() == 2
    else:
        assert gate.returncode == 130
        assert errors.endswith("\ndpbench: interrupted; what was recorded so far is kept\n")  # behind the stages
        assert not processes()
    assert folders() == []


def test_the_folder_of_a_gate_that_lives_is_left_alone(started):
    start, processes, folders = started
    gate = start("--head", "equal", "--tiers", "1")
    wait_until(lambda: len(processes()) >= AT_LEAST)
    (folder,) = folders()
    assert start("--head", "without", "--tiers", "0").wait() == 2
    assert folders() == [folder]
    gate.terminate()
    gate.wait()
    assert folders() == []
