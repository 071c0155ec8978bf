"""Places that are not what a command needs: a folder that is gone, a user who does not exist, pipes and devices."""

import os
import subprocess
import sys

import pytest

from tests.cli.conftest import ROOT


def run(folder, *words, before="", **environment):
    """Run the command line in bash, after these commands."""
    return subprocess.run(
        ["bash", "-c", f'{before} exec "$python" -P -m dpbench "$@"', "bash", *map(str, words)],
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "python": sys.executable} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def assert_one_line(done, code, *words):
    assert done.returncode == code, done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1), done.stderr
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize(("command", "code"), [(["list"], 2), (["gate", "--base", "main"], 3), (["counts"], 2)])
def test_a_folder_that_is_gone(tmp_path, command, code):
    done = run(tmp_path, *command, before="mkdir gone; cd gone; rmdir ../gone;")
    assert_one_line(done, code, "current directory", "allowed: one that exists")


def test_the_version_needs_no_folder(tmp_path):
    assert run(tmp_path, "--version", before="mkdir gone; cd gone; rmdir ../gone;").returncode == 0


def test_a_user_who_does_not_exist(tmp_path):
    done = run(tmp_path, "asv-machine", "--machine-file", "~nobody-of-that-name/x")
    assert_one_line(done, 2, "--machine-file: '~nobody-of-that-name/x'", "allowed")


FIFO, ZERO = "fifo", "/dev/zero"


@pytest.mark.parametrize("place", [FIFO, ZERO])
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sweep", "{}"], 2),
        (["export", "{}"], 2),
        (["asv-machine", "--machine-file={}"], 2),
        (["gate", "--base=HEAD~1", "--tiers=0", "--settings={}"], 3),
    ],
)
def test_a_pipe_or_a_device_is_not_read(tmp_path, command, code, place):
    os.mkfifo(tmp_path / FIFO)
    git = 'git -c user.name=n -c user.email=e@x commit --quiet --allow-empty -m "$i"'
    before = f"git init --quiet .; for i in 1 2; do {git}; done;"
    done = run(tmp_path, *(word.format(place) for word in command), before=before if "gate" in command else "")
    assert_one_line(done, code, place, "cannot be read: not a regular file")


def test_a_sweep_file_that_is_too_large(tmp_path):
    with (tmp_path / "large.toml").open("wb") as file:
        file.truncate(65 << 20)
    assert_one_line(run(tmp_path, "sweep", "large.toml"), 2, "cannot be read: larger than 64 MiB")


@pytest.mark.parametrize("place", [FIFO, "/dev/null", "."])
def test_events_go_to_files_only(tmp_path, place):
    os.mkfifo(tmp_path / FIFO)
    done = run(tmp_path, "counts", "--variants=naive", "--devices=sim*2", "--workloads=mlp/tiny", "--events", place)
    assert_one_line(done, 2, f"events: {place!r} cannot be written; allowed: a file in an existing folder")


def test_a_name_that_is_too_long(tmp_path):
    done = run(tmp_path, "counts", "--check", "--expected", "x" * 300)
    assert_one_line(done, 2, "File name too long")
    assert "error in dpbench" not in done.stderr


def test_a_commit_without_files_cannot_be_judged(tmp_path):
    git = 'git -c user.name=n -c user.email=e@x commit --quiet --allow-empty -m "$i"'
    done = run(
        tmp_path, "gate", "--base=HEAD~1", "--tiers=0", before=f"git init --quiet .; for i in 1 2; do {git}; done;"
    )
    assert_one_line(done, 3, "has no dpbench/parallel; allowed: a commit that has one")
