"""Records from elsewhere: no field of theirs is an option of git, a path, or a traceback."""

import json
import os
import subprocess
import sys

import pytest

from dpbench.results.record import to_line
from tests.cli.conftest import ROOT
from tests.results.making import ENVIRONMENT, case, ok

COMMIT = "0123456789" * 4
WORDS = ("--machine=here", "--machine-file=machines.json")


@pytest.fixture
def export(tmp_path):
    """Export a record with these fields changed, in a folder with a repository; return the finished process."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@x", "commit", "--quiet", "--allow-empty", "-m", "one"],
        cwd=tmp_path,
        check=True,
    )
    machine = {"here": {"machine": "here"}, "version": 1}
    (tmp_path / "machines.json").write_text(json.dumps(machine))
    (tmp_path / "precious").write_text("precious")

    def call(started_at=None, machines=None, path=os.environ["PATH"], **environment):
        found = ENVIRONMENT.model_copy(update={"commit": COMMIT, "dirty": False})
        record = json.loads(to_line(ok(case(workload="mlp/small"), 0, (0.1,) * 8, environment=found)))
        record["environment"].update(environment)
        if started_at is not None:
            record["started_at"] = started_at
        (tmp_path / "r.jsonl").write_text(json.dumps(record) + "\n")
        if machines is not None:
            (tmp_path / "machines.json").write_text(machines)
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "dpbench",
                "asv-export",
                "r.jsonl",
                "--machine=here",
                "--machine-file=machines.json",
            ],
            check=False,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return call


def assert_one_line(done, *words):
    assert done.returncode == 2, done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1), done.stderr
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize(
    "commit", ["--output=precious", "HEAD:", "HEAD", "HEAD~1..HEAD", "0123456\0", "0123456\n", "0" * 65, "012345"]
)
def test_a_commit_that_is_no_hash(export, tmp_path, commit):
    assert_one_line(export(commit=commit), "r.jsonl: line 1 is no record: environment.commit: ", "^[0-9a-f]{7,64}$")
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "results").exists()


def test_a_commit_that_the_repository_lacks(export):
    assert_one_line(export(), COMMIT, "is not in this folder's repository")


def test_a_commit_that_is_a_tree(export, tmp_path):
    tree = subprocess.run(["git", "write-tree"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert_one_line(export(commit=tree.strip()), tree.strip(), "is not in this folder's repository")


@pytest.mark.parametrize("started_at", ["yesterday", "", "2025-13-01T00:00:00Z", "\0"])
def test_a_start_that_is_no_date(export, started_at):
    assert_one_line(export(started_at=started_at), "is no record: started_at: ", "allowed: ")


@pytest.mark.parametrize("python", ["3." + "1" * 5000, "3.11/../../../x", "snake", "3\0.11"])
def test_a_python_that_is_no_version(export, python):
    assert_one_line(export(python=python), "is no record: environment.python: ")


def test_a_key_with_terminal_commands(export):
    done = export(**{"\x1b]0;title\x07": 1})
    assert_one_line(done, "environment. ]0;title : Extra inputs")
    assert "\x1b" not in done.stderr


def test_without_git(export, tmp_path):
    (tmp_path / "empty").mkdir()
    assert_one_line(export(path=str(tmp_path / "empty")), "git cannot be started", "allowed: git on the PATH")


@pytest.mark.parametrize(
    ("machines", "word"),
    [
        ('{"version": 1, "here": ' + "[" * 200_000, "nested too deeply"),
        ('{"version": 1, "here": {}}', "here.machine"),
        ('{"version": 1, "here": {"machine": "../../X"}}', "'../../X'"),
        ('{"version": 1, "here": {"machine": "a\\u0000b"}}', "here.machine"),
        ('{"version": 1, "here": {"machine": "%s"}}' % ("m" * 300), "here.machine"),
        ('{"version": 1, "here": 5}', "here"),
    ],
)
def test_machine_files(export, tmp_path, machines, word):
    assert_one_line(export(machines=machines), "machines.json", word, "allowed")
    assert not (tmp_path / "results").exists()
