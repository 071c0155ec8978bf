"""`.ci/test_python`: what it refuses, and that CI has the same versions of Python, and the oldest torch."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "test_python"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = re.findall(r"(3\.\d+)\) suite=", SCRIPT.read_text())


@pytest.mark.parametrize("word", ["", "abc", "3.9", "3.1", "@", "../3.14", "3.14 x", "-x"])
@pytest.mark.parametrize("command", [[SCRIPT], ["make", "--silent", "test-python"]], ids=["script", "make"])
def test_a_wrong_version_is_one_line(word, command):
    given = word if command == [SCRIPT] else f"PYTHON_VERSION={word}"
    done = subprocess.run([*command, given], cwd=ROOT, capture_output=True, text=True, check=False)
    line = f"test_python: PYTHON_VERSION: '{word}' is not allowed; allowed: {', '.join(VERSIONS)}"
    assert (done.returncode, done.stdout, done.stderr.splitlines()[0]) == (2, "", line)


def test_the_workflow_has_these_versions_and_that_which_no_debian_has():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    classifiers = PROJECT["classifiers"]
    versions = sorted([*VERSIONS, "3.12"])
    assert jobs["test"]["strategy"]["matrix"]["python"] == versions
    assert [classifier.rpartition(" ")[2] for classifier in classifiers if ":: 3." in classifier] == versions


def test_the_workflow_has_the_oldest_torch_that_is_allowed():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    (torch,) = (dependency for dependency in PROJECT["dependencies"] if dependency.startswith("torch"))
    oldest = jobs["older-torch"]["strategy"]["matrix"]["torch"][0]
    assert torch == f"torch>={oldest.rpartition('.')[0]}"


def test_another_user_than_root_is_refused(tmp_path):
    """With an `id` that names another user: a real one might not be allowed to enter the checkout."""
    (tmp_path / "id").write_text('#!/bin/sh\n[ "$1" = -u ] && echo 65534 || echo nobody\n')
    (tmp_path / "id").chmod(0o755)
    (tmp_path / "dirname").symlink_to(shutil.which("dirname"))
    environment = {"PATH": str(tmp_path)}
    done = subprocess.run([SCRIPT, "3.14"], env=environment, capture_output=True, text=True, check=False)
    line = "test_python: user: 'nobody' may not create a Debian root; allowed: root\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
