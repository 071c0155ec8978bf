"""`dpbench gate` end to end, over commits of real repositories."""

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.repositories import GATHERED, MODULE, SETTINGS, command, edited, environment, git, make_repository
from tests.simulated import needs_simulator

TIMES, COUNTS = ("--tiers", "1"), ("--tiers", "0")


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate") / "repository"
    folder.mkdir()
    make_repository(folder)
    return folder


@pytest.fixture
def repository(whole, tmp_path):
    folder = tmp_path / "repository"
    shutil.copytree(whole, folder)
    (tmp_path / "temporary").mkdir()
    yield folder
    assert list((tmp_path / "temporary").glob("dpbench*")) == []
    assert len(git(folder, "worktree", "list").splitlines()) == 1


@pytest.fixture
def gate(repository, tmp_path):
    """Run the gate in the repository; the call returns the finished process."""

    def call(base, head, *words, quick=True):
        revisions = ("--base", base, *(("--head", head) if head else ()))
        usual = ("--settings", "gate.toml", "--results", tmp_path / "results", "--budget", "100s")
        return subprocess.run(
            command(*revisions, *usual, *words, quick=quick),
            cwd=repository,
            env=environment(tmp_path / "temporary"),
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def judged(done):
    """Return standard output, which is one JSON object."""
    return json.loads(done.stdout)


def history(folder):
    return [json.loads(line) for line in (folder / "results/gate/history.jsonl").read_text().splitlines()]


def test_equal_commits_are_never_slower_and_every_form_is_written(gate, repository, tmp_path):
    (repository / "notes.txt").touch()
    done = gate("base", "equal", *TIMES, "--json", "--comment", tmp_path / "a.md", "--junit", tmp_path / "a.xml")
    judgement = judged(done)
    assert judgement["verdict"] in ("pass", "undecided"), done.stderr
    assert done.returncode == judgement["exit_code"] == {"pass": 0, "undecided": 4}[judgement["verdict"]]
    (times,) = judgement["times"]
    assert times["benchmark"] == "tiny"
    assert 0.5 < times["ratio"]["value"] < 2
    assert times["rounds"] >= 3
    assert judgement["base"]["commit"] == git(repository, "rev-parse", "base")
    assert judgement["head"]["commit"] == git(repository, "rev-parse", "equal")
    assert judgement["head"]["subject"] == "the equal one"
    assert judgement["notes"] == []  # the working tree was not judged
    assert "base" in (tmp_path / "a.md").read_text()
    assert ET.parse(tmp_path / "a.xml").getroot().iter("testcase")
    (line,) = history(tmp_path)
    assert (line["base_commit"], line["head_commit"]) == (judgement["base"]["commit"], judgement["head"]["commit"])
    assert line["verdict"] == judgement["verdict"]
    assert line["benchmarks"][0]["base_step_s"] == times["base_step_s"]
    assert git(repository, "status", "--porcelain") == "?? notes.txt"


def test_a_planted_slowdown_is_found_and_named(gate, tmp_path):
    done = gate("base", "slow", *TIMES)
    assert done.returncode == 1, done.stderr
    assert re.match(r"Slower: tiny by [0-9.]+ %\n", done.stdout)
    (line,) = history(tmp_path)
    assert line["verdict"] == "slower"
    assert line["benchmarks"][0]["ratio"] > 1.2


@pytest.mark.exhaustive
def test_a_planted_speed_up_passes(gate, tmp_path):
    done = gate("slow", "base", "--base-exact", *TIMES)
    assert done.returncode == 0, done.stderr
    assert history(tmp_path)[0]["benchmarks"][0]["ratio"] < 1 / 1.2


@needs_simulator
def test_an_operator_more_is_named_and_one_less_passes_and_is_told(gate, repository):
    more = gate("base", "more", *COUNTS, "--json")
    assert more.returncode == 1, more.stderr
    operators = next(change for change in judged(more)["counters"] if change["counter"] == "forward.operators")
    assert operators["head"] == operators["base"] + 1
    assert operators["benchmark"].startswith("counts mlp/tiny sim")
    assert {change["is_worse"] for change in judged(more)["counters"]} == {True}
    assert "counters are worse" in judged(more)["why"]
    fewer = gate("more", "base", "--base-exact", *COUNTS)
    assert fewer.returncode == 0, fewer.stderr
    assert "forward.operators" in fewer.stdout


@needs_simulator
@pytest.mark.exhaustive
def test_what_landed_on_the_branch_since_is_not_held_against_a_head_that_lacks_it(gate, repository):
    """The tip of the branch has an operator less than the commit at which head left the branch."""
    faster, behind = (
        git(repository, "commit-tree", f"{tree}^{{tree}}", "-p", "more", "-m", tree) for tree in ("base", "more")
    )
    done = gate(faster, behind, *COUNTS)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = " ".join(done.stdout.split())
    assert f"base {git(repository, 'rev-parse', 'more')[:10]} (merge base with {faster}) the more one" in shown
    assert f"head {behind[:10]} " in shown
    assert gate(faster, behind, "--base-exact", *COUNTS).returncode == 1


def accepting(repository, expires):
    revision = git(repository, "rev-parse", "more")[:10]
    entry = f'benchmark = "counts *"\nrevision = "{revision}"\nreason = "it had to be"\nexpires = {expires}\n'
    (repository / "gate.toml").write_text(f"{SETTINGS}\n[[accepted]]\n{entry}")


@needs_simulator
@pytest.mark.exhaustive
def test_what_is_accepted_passes_with_its_reason_until_it_expires(gate, repository):
    today = datetime.now(UTC).date()
    accepting(repository, today + timedelta(days=2))
    accepted = gate("base", "more", *COUNTS)
    assert accepted.returncode == 0, accepted.stderr
    assert "it had to be" in accepted.stdout
    assert "nothing is slower but what is accepted" in accepted.stdout
    accepting(repository, today - timedelta(days=2))
    expired = gate("base", "more", *COUNTS)
    assert expired.returncode == 1, expired.stderr
    assert "expired" in expired.stdout


@pytest.mark.exhaustive
@needs_simulator
def test_a_changed_tree_is_told_of_and_measured_where_that_is_asked_for(gate, repository):
    git(repository, "checkout", "--quiet", "equal")
    edited(repository, MODULE, GATHERED, GATHERED.replace(")\n", ").clone()\n"))
    (repository / "new.txt").touch()
    commit = gate("base", None, *COUNTS)
    assert commit.returncode == 0, commit.stderr
    assert "note: 2 files differ from HEAD and were not measured" in " ".join(commit.stdout.split())
    tree = gate("base", None, "--worktree", *COUNTS, "--json")
    assert tree.returncode == 1, tree.stderr
    assert judged(tree)["head"]["commit"] is None
    assert judged(tree)["notes"] == []
    assert "forward.operators" in {change["counter"] for change in judged(tree)["counters"]}
