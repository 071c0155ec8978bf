"""`dpbench gate --bisect` end to end, over seven commits of a real repository, one of them broken."""

import json
import shutil
import subprocess

import pytest

from tests.cli.repositories import (
    GATHERED,
    INIT,
    MODULE,
    QUICK,
    ROOT,
    SETTINGS,
    WRAPPER,
    command,
    edited,
    environment,
    git,
)
from tests.simulated import needs_simulator

# `mlp/tiny` on simulated devices, where operators are counted, and on CPU lanes, where Python calls are.
BOTH_LANES = QUICK.replace(' and "sim:1" in case.devices', "")
CHECKED = "            check_not_capturing(self.src_device_obj)\n"


@pytest.fixture(scope="module")
def row(tmp_path_factory):
    """Commits c0 to c6: c3 does not import, c4 and c6 have a Python call more each, c5 an operator more."""
    folder = tmp_path_factory.mktemp("bisect") / "repository"
    folder.mkdir()
    shutil.copytree(ROOT / WRAPPER, folder / WRAPPER, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "gate.toml").write_text(SETTINGS)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    whole = (folder / INIT).read_text()
    for number in range(7):
        (folder / INIT).write_text("def (:\n" if number == 3 else whole)
        if number == 5:
            edited(folder, MODULE, GATHERED, GATHERED.replace(")\n", ").clone()\n"))
        if number in (4, 6):
            edited(folder, MODULE, CHECKED, CHECKED * 2)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", f"number {number}")
        git(folder, "tag", f"c{number}")
    git(folder, "tag", "other", git(folder, "commit-tree", "c0^{tree}", "-m", "no relation"))
    return folder


@pytest.fixture
def bisect(row, tmp_path):
    """Run a bisection in the repository; the call returns the finished process."""
    (tmp_path / "temporary").mkdir()

    def call(*words):
        usual = ("--settings", "gate.toml", "--results", tmp_path / "results", "--tiers", "0")
        return subprocess.run(
            [*command()[:3], BOTH_LANES, "gate", *map(str, (*usual, *words))],
            cwd=row,
            env=environment(tmp_path / "temporary"),
            capture_output=True,
            text=True,
            check=False,
        )

    yield call
    assert list((tmp_path / "temporary").glob("dpbench*")) == []
    assert not (tmp_path / "results").exists()
    assert git(row, "status", "--porcelain") == ""


@needs_simulator
@pytest.mark.exhaustive
def test_the_commit_and_the_code_that_adds_an_operator_are_named_although_another_is_broken(bisect, row):
    done = bisect("--bisect", "c0", "c6", "--counter", "forward.operators", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["first_bad"]["commit"] == git(row, "rev-parse", "c5")
    assert (found["first_bad"]["subject"], found["first_bad"]["author"]) == ("number 5", "n")
    assert found["last_good"]["subject"] == "number 4"
    answers = {step["commit"]["subject"]: step["answer"] for step in found["steps"]}
    assert answers["number 3"] == "skipped"
    assert "SyntaxError" in next(step["why"] for step in found["steps"] if step["answer"] == "skipped")
    (cause,) = found["blame"]["causes"]
    assert (cause["what"], cause["base"], cause["head"]) == ("aten.clone.default", 0, 1)
    assert (cause["file"], cause["function"]) == (str(MODULE), "DataParallel.forward")


@pytest.mark.exhaustive
def test_a_broken_commit_before_the_first_bad_one_leaves_both(bisect, row):
    done = bisect("--bisect", "c2", "c4", "--counter", "forward.python_calls")
    assert done.returncode == 2, done.stderr
    step, outcome, *left = done.stdout.splitlines()
    assert step.startswith("skipped: ")
    assert "SyntaxError" in step
    assert outcome.startswith("Undecided: the first bad commit is one of 2, by forward.python_calls of ")
    assert [line.split(maxsplit=1)[1] for line in left] == ["number 3", "number 4"]


def test_a_python_call_is_named_with_its_function_and_line(bisect, row):
    done = bisect("--bisect", "c5", "c6")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"First bad commit: {git(row, 'rev-parse', 'c6')[:10]} number 6\nby n on 20")
    assert "+1 (2 -> 3) check_not_capturing (dpbench/parallel/devices.py:" in done.stdout
    assert "in DataParallel.forward at dpbench/parallel/module.py:" in done.stdout


REFUSED = {
    "one commit": (["--bisect", "c1", "c1"], ["--bisect", "'c1'", "one commit"]),
    "unknown": (["--bisect", "c1", "nowhere"], ["--bisect", "'nowhere'"]),
    "the wrong way round": (["--bisect", "c3", "c1"], ["'c3'", "no ancestor", "'c1'"]),
    "no relation": (["--bisect", "other", "c1"], ["'other'", "no ancestor"]),
    "with a base": (["--bisect", "c0", "c1", "--base", "c0"], ["--base", "--bisect"]),
    "with a comment": (["--bisect", "c0", "c1", "--markdown", "a.md"], ["--markdown", "--bisect"]),
    "with the history": (["--bisect", "c0", "c1", "--tiers", "2"], ["--tiers", "2"]),
    "a counter alone": (["--base", "c0", "--counter", "forward.operators"], ["--counter", "--bisect"]),
}


@pytest.mark.parametrize(("words", "parts"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_searched_is_one_line_and_broken(bisect, words, parts):
    done = bisect(*words)
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert all(part in line for part in parts), line
