"""Records from elsewhere beside a real repository: no field of theirs is an option of git or a path.

`tests/hostile/rows.py` has the fields that a record may hold wrongly.
"""

import json
import os
import subprocess

import pytest

from dpbench.records.record import to_line
from tests.records.making import ENVIRONMENT, case, ok

COMMIT = "0123456789" * 4


@pytest.fixture
def export(dpbench, tmp_path):
    """Export a record of this commit, in a folder with a repository; return the finished process."""
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@x", "-C", str(tmp_path)]
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "machines.json").write_text(json.dumps({"here": {"machine": "here"}, "version": 1}))
    (tmp_path / "precious").write_text("precious")

    def call(commit=COMMIT, path=os.environ["PATH"]):
        found = ENVIRONMENT.model_copy(update={"commit": COMMIT, "dirty": False})
        line = to_line(ok(case(workload="mlp/small"), 0, (0.1,) * 8, environment=found)).decode()
        (tmp_path / "r.jsonl").write_text(line.replace(json.dumps(COMMIT), json.dumps(commit)))
        words = ("asv-export", "r.jsonl", "--machine=here", "--machine-file=machines.json")
        return dpbench(*words, PATH=path, GIT_DIR=str(tmp_path / ".git"))

    return call


def assert_one_line(done, *words):
    assert done.returncode == 2, done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1), done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_a_commit_that_is_an_option(export, tmp_path):
    done = export("--output=precious")
    assert_one_line(done, "r.jsonl: line 1 is no record: environment.commit: ", "^[0-9a-f]{7,64}$")
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "results").exists()


def test_a_commit_that_the_repository_lacks(export):
    assert_one_line(export(), COMMIT, "is not in this folder's repository")


def test_a_commit_that_is_a_tree(export, tmp_path):
    tree = subprocess.run(["git", "write-tree"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert_one_line(export(tree.strip()), tree.strip(), "is not in this folder's repository")


def test_without_git(export, tmp_path):
    (tmp_path / "empty").mkdir()
    assert_one_line(export(path=str(tmp_path / "empty")), "git cannot be started", "allowed: git on the PATH")
