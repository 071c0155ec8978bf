"""If a gate cannot judge: one line, exit code 2 or 3, and no files or worktrees stay."""

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

    def call(*words):
        monkeypatch.chdir(repository)
        settings = () if "--settings" in words else ("--settings", "gate.toml")
        usual = (*settings, "--results", tmp_path / "results")
        monkeypatch.setattr(sys, "argv", ["dpbench", "gate", *map(str, (*words, *usual))])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        assert ended.value.code == 3, out + err
        assert out == ""
        (line,) = (printed for printed in err.splitlines() if printed.startswith("dpbench: "))  # others are stages
        return f"{line}\n"

    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(tier0_cases, "checked_cases", lambda: [CASE])
    usual = signal.getsignal(signal.SIGTERM)
    yield call
    signal.signal(signal.SIGTERM, usual)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert list(tmp_path.glob("results/**/*.jsonl")) == []
    assert git(repository, "status", "--porcelain") == ""
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.parametrize("tier", [pytest.param("0", marks=needs_simulator), "1"])
def test_a_base_that_does_not_build(refused, tier):
    line = refused("--base", "broken", "--head", "base", "--base-exact", "--tiers", tier)
    assert "base: " in line
    assert "SyntaxError" in line
    assert "__init__.py, line 1" in line


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
    assert done.stdout == "2\n"
    assert done.stderr.startswith(
        f"dpbench: {results}/gate/history.jsonl: cannot be written: Read-only file system; allowed: "
    )


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
