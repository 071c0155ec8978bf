"""If a gate cannot judge: one line, exit code 3, and no files or worktrees stay."""

import os
import signal
import sys
import tempfile

import pytest

from dpbench.cases.case import Case
from dpbench.cases.variants import VariantName
from dpbench.cli import main
from dpbench.gate import tier0_cases
from tests.cli.repositories import ROOT, SETTINGS, git, make_repository
from tests.records.test_full_disk import skip_unless_allowed, unshared
from tests.simulated import needs_simulator

REFUSED = {
    "no base": ([], ["--base", "is missing", "main"]),
    "unknown base": (["--base", "nowhere"], ["--base", "nowhere", "git rev-parse"]),
    "unknown head": (["--base", "base", "--head", "nowhere"], ["--head", "nowhere", "git rev-parse"]),
    "a base that is an option": (["--base=--all"], ["--base", "--all"]),
    "a file, no commit": (["--base", "base:gate.toml"], ["--base", "base:gate.toml"]),
    "one commit twice": (["--base", "base", "--head", "main"], ["--head", "main", "same commit", "--worktree"]),
    "a head that base has": (["--base", "equal", "--head", "base"], ["--head", "'base'", "already", "--base-exact"]),
    "head and tree": (["--base", "base", "--head", "equal", "--worktree"], ["--head", "equal", "--worktree"]),
    "unknown tier": (["--base", "base", "--tiers", "0,4"], ["--tiers", "0,4", "0, 1, 2"]),
    "a tier twice": (["--base", "base", "--tiers", "0,0"], ["--tiers", "0,0", "once"]),
    "no tier": (["--base", "base", "--tiers", ""], ["--tiers", "''"]),
    "no budget": (["--base", "base", "--budget", "soon"], ["--budget", "soon", "5m"]),
    "too long a budget": (["--base", "base", "--budget", "999999999h"], ["--budget", "999999999h", "at most 168h"]),
    "unknown option": (["--base", "base", "--had", "equal"], ["--had"]),
    "a stray word": (["base"], ["base"]),
    "no settings": (["--base", "base", "--head", "equal", "--settings", "none.toml"], ["none.toml", "cannot be read"]),
    "settings of no form": (["--base", "base", "--head", "equal", "--settings", ".git/HEAD"], ["HEAD", "is not TOML"]),
    "no folder for the comment": (["--base", "base", "--comment", "no/a.md"], ["no/a.md", "cannot be written"]),
    "a folder for the comment": (["--base", "base", "--junit", "dpbench"], ["dpbench", "cannot be written"]),
    "an end like a folder's": (["--base", "base", "--comment", "a.md/"], ["--comment", "'a.md/' cannot be written"]),
    "one file for two forms": (["--base", "base", "--comment", "a", "--junit", "a"], ["--junit", "'a'", "--comment"]),
    "head lacks the wrapper": (
        ["--base", "base", "--head", "without", "--tiers", "0"],
        ["without", "has no dpbench/parallel"],
    ),
    "a drift without a history": (["--base", "base", "--head", "equal", "--tiers", "2"], ["--tiers", "history"]),
}
CASE = Case(variant=VariantName.TUNED, workload="mlp/tiny", batch=8, devices=("sim:0", "sim:1"), threads=1)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate") / "repository"
    folder.mkdir()
    make_repository(folder)
    return folder


@pytest.fixture
def refused(repository, tmp_path, monkeypatch, capfd):
    """Call the gate in this process and return its one line."""

    def call(*words, cwd=repository):
        monkeypatch.chdir(cwd)
        settings = () if "--settings" in words else ("--settings", "gate.toml")
        usual = (*settings, "--results", tmp_path / "results")
        monkeypatch.setattr(sys, "argv", ["dpbench", "gate", *map(str, (*words, *usual))])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        assert ended.value.code == 3, out + err
        assert out == ""
        (line,) = (each for each in err.splitlines() if each.startswith("dpbench: "))  # others are stages
        return f"{line}\n"

    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(tier0_cases, "checked_cases", lambda: [CASE])
    for name in ("gate_cases", "growth_cases"):
        monkeypatch.setattr(tier0_cases, name, tuple)
    usual = signal.getsignal(signal.SIGTERM)
    yield call
    signal.signal(signal.SIGTERM, usual)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert list(tmp_path.glob("results/**/*.jsonl")) == []
    assert git(repository, "status", "--porcelain") == ""
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused(refused, options, words):
    line = refused(*options)
    assert all(word in line for word in words), line


@pytest.mark.parametrize("tier", [pytest.param("0", marks=needs_simulator), "1"])
def test_a_base_that_does_not_build(refused, tier):
    line = refused("--base", "broken", "--head", "base", "--base-exact", "--tiers", tier)
    assert "base: " in line
    assert "SyntaxError" in line
    assert "__init__.py, line 1" in line


def test_a_file_that_is_none_is_not_replaced(refused, tmp_path):
    """As root, the gate could replace ``/dev/null`` with a file."""
    os.mkfifo(tmp_path / "pipe")
    line = refused("--base", "base", "--head", "without", "--comment", tmp_path / "pipe", "--tiers", "0")
    assert "pipe' cannot be written; allowed: a file" in line
    assert (tmp_path / "pipe").is_fifo()


def test_a_benchmark_that_neither_commit_has_is_no_pass(refused, repository, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(SETTINGS.replace("mlp/tiny", "mine.nowhere:step"))
    again = git(repository, "commit-tree", "without^{tree}", "-p", "without", "-m", "again")
    line = refused("--base", "without", "--head", again, "--tiers", "0", "--settings", file)
    assert all(word in line for word in ("'tiny'", "'mine.nowhere:step'", "no such function", "src")), line


def test_a_history_that_cannot_be_written_is_known_before_anything_is_measured(repository, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    mount = f"mount --bind {results} {results} && mount -o remount,ro,bind {results}"
    skip_unless_allowed(mount)
    # a head that would fail if it were measured
    gate = f"{sys.executable} -P -m dpbench gate --base base --head broken --tiers 1 --results {results}"
    done = unshared(f"{mount} && cd {repository} && PYTHONPATH={ROOT} {gate}; echo $?")
    assert done.stdout == "3\n"
    assert done.stderr.startswith(f"dpbench: {results}/gate/history.jsonl: cannot be written; allowed: ")


def test_a_threshold_that_is_no_number(refused, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(SETTINGS.replace('"20%"', '"a lot"'))
    line = refused("--base", "base", "--head", "equal", "--settings", file)
    assert all(word in line for word in ("mine.toml", "tiny", "threshold", "a lot", "3%")), line


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('variant = "ddp"', ("'tiny'", "'ddp'", "a process for each device")),
        ('variant = "torch_dp"', ("'tiny'", "'torch_dp'", "accelerator")),
        ('devices = "sim*2"', ("'tiny'", "simulated devices have no times")),
        ('devices = "cuda:9"', ("'tiny'", "cuda:9", "not on this machine")),
    ],
)
def test_what_this_machine_cannot_time(refused, tmp_path, more, words):
    file = tmp_path / "mine.toml"
    kept = [line for line in SETTINGS.splitlines() if not line.startswith(more.partition(" ")[0])]
    file.write_text("\n".join([*kept, more]))
    line = refused("--base", "base", "--head", "equal", "--settings", file)
    assert all(word in line for word in words), line


def test_a_folder_that_is_in_no_repository(refused, tmp_path):
    assert "is in no git repository" in refused("--base", "main", cwd=tmp_path)


def test_an_unreadable_history(refused, tmp_path):
    (tmp_path / "results/gate/history.jsonl").mkdir(parents=True)
    line = refused("--base", "base", "--head", "equal")
    assert "history.jsonl" in line
    (tmp_path / "results/gate/history.jsonl").rmdir()


def test_an_unreadable_self_test_is_known_before_anything_is_measured(refused, tmp_path):
    file = tmp_path / "results/gate/self-test-x.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    line = refused("--base", "base", "--head", "broken", "--tiers", "1")
    assert "self-test-x.json: is no self-test's result" in line


def test_no_space_for_the_commits(repository, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = f"mount -t tmpfs -o size=16k none {small}"
    skip_unless_allowed(mount)
    gate = f"{sys.executable} -P -m dpbench gate --base base --head equal --tiers 0 --results {tmp_path / 'results'}"
    done = unshared(f"{mount} && cd {repository} && PYTHONPATH={ROOT} TMPDIR={small} {gate}; echo $?; ls -A {small}")
    assert done.stdout == "3\n"
    assert done.stderr.startswith(f"dpbench: '{small}/dpbench-gate-")
    assert " cannot be written" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists()
