"""`dpbench init`, and what a shell completes: in this process, without children."""

import re
import sys
from pathlib import Path
from unittest import mock

import pytest

from dpbench.cli import init as command
from dpbench.cli.init import write_new
from dpbench.errors import WrongInputError
from tests.cli.repositories import git

SETTINGS = "benchmarks/gate.toml"
WORKFLOWS = [".github/workflows/dpbench-comment.yml", ".github/workflows/dpbench.yml"]


@pytest.fixture(autouse=True)
def _repository(tmp_path):
    git(tmp_path, "init", "--quiet")


def files(folder):
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if path.parts[0] != ".git")


def test_files_are_written_once_and_kept(call, tmp_path):
    (tmp_path / "asv.conf.json").write_text("{}")
    git(tmp_path, "add", "--all")
    (tmp_path / "untracked_test.py").write_text("def test_x(benchmark): ...")
    code, out, err = call("init")
    assert (code, err, out.splitlines()[0]) == (
        0,
        "",
        f"{SETTINGS}: written: factories 0, suites of asv 1, files of pytest-benchmark 0",
    )
    assert 'asv = "."' in (tmp_path / SETTINGS).read_text()
    (tmp_path / SETTINGS).write_text("mine")
    code, out, err = call("init", "--ci", "github")
    written = [f"{name}: written" for name in WORKFLOWS]
    assert (code, err, out.splitlines()[:3]) == (0, "", [f"{SETTINGS}: not written: exists", *written])
    assert "set OWNER and the commit" in out
    assert (tmp_path / SETTINGS).read_text() == "mine"
    code, out, err = call("init", "--ci", "github")
    assert (code, err, out.splitlines()[-1]) == (0, "", "complete: dpbench gate --base HEAD~1")
    assert out.count("not written: exists") == 3


def test_settings_in_pyproject_are_settings(call, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.dpbench.gate]\n")
    code, out, _ = call("init")
    assert (code, out.splitlines()[0]) == (0, f"{SETTINGS}: not written: pyproject.toml has [tool.dpbench.gate]")
    assert files(tmp_path) == ["pyproject.toml"]


@pytest.mark.parametrize(
    ("direct", "owner"),
    [
        ('{"url": "https://github.com/ann/x.git", "vcs_info": {"commit_id": "%s"}}', "ann/x"),
        ('{"url": "https://github.com/ann/x", "vcs_info": {"commit_id": "%s"}}', "ann/x"),
        ('{"url": "https://github.com/ann/x", "vcs_info": {"commit_id": "main"}}', None),
        ('{"url": "https://example.org/ann/x", "vcs_info": {"commit_id": "%s"}}', None),
        ('{"url": 3}', None),
        *((text, None) for text in ("{", "[]", "null")),
    ],
)
def test_the_workflows_name_the_version_that_is_installed(call, tmp_path, monkeypatch, direct, owner):
    text = direct.replace("%s", "1f" * 20)
    monkeypatch.setattr(command, "distribution", lambda _: mock.Mock(read_text=lambda _: text))
    code, out, _ = call("init", "--ci", "github")
    assert (code, "set OWNER" in out) == (0, owner is None)
    place = f"{owner}/.github/actions/%s@{'1f' * 20}\n" if owner else f"OWNER/dpbench/.github/actions/%s@{'0' * 40} #"
    for name, action in zip(WORKFLOWS, ("comment", "gate"), strict=True):
        assert f"uses: {place % action}" in (tmp_path / name).read_text()


def test_no_repository_is_one_line(call, tmp_path):
    (tmp_path / ".git").rename(tmp_path / "git")
    code, out, err = call("init")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is in no git repository" in err


@pytest.mark.parametrize("blocked", ["benchmarks", ".github"])
def test_a_failed_write_leaves_nothing(call, tmp_path, blocked):
    (tmp_path / blocked).write_text("a file")
    code, out, err = call("init", "--ci", "github")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.match(rf"dpbench: '{blocked}/.*' cannot be written: ", err)
    assert files(tmp_path) == [blocked]
    assert not (tmp_path / "benchmarks").is_dir()


def test_a_file_that_appears_meanwhile_is_kept(tmp_path):
    (tmp_path / "b").write_text("mine")
    with pytest.raises(WrongInputError, match="'b' cannot be written: File exists"):
        write_new(tmp_path, {Path("x/a"): "new", Path("b"): "new"})
    assert files(tmp_path) == ["b"]
    assert not (tmp_path / "x").exists()
    assert (tmp_path / "b").read_text() == "mine"


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("dpbench co", {"compare", "counts"}),
        ("dpbench --vers", {"--version"}),
        ("dpbench compare --work", {"--workloads"}),
        ("dpbench compare --variants tuned,na", {"tuned,naive"}),
        ("dpbench trace mlp/", {"mlp/tiny", "mlp/small", "mlp/base", "mlp/large"}),
        ("dpbench elastic --workload convnet/t", {"convnet/tiny"}),
        ("dpbench init --ci g", {"github"}),
    ],
)
def test_bash_completes(call, monkeypatch, typed, completed):
    monkeypatch.setenv("_DPBENCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    if len(typed.split()) == 2:
        monkeypatch.setattr("dpbench.cli.command_line.import_module", None)  # to list commands imports none
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it would fail
    code, out, err = call()
    assert (code, set(out.split()), err) == (0, completed, "")


def test_options_of_the_command_line_win_over_pyproject(call, tmp_path, monkeypatch):
    seen = {}

    def refuse(options):
        seen.update(options)
        raise WrongInputError("seen")

    monkeypatch.setattr("dpbench.cli.compare.from_options", refuse)
    (tmp_path / "pyproject.toml").write_text('[tool.dpbench.compare]\ndata = "digits"\nbudget = "9s"\nbatch = [1, 2]\n')
    assert call("compare", "--data", "random")[::2] == (2, "dpbench: seen\n")
    assert {"data": "random", "budget": "9s", "case_time": "9s", "batch": "1,2", "rounds": None}.items() <= seen.items()
    (tmp_path / "pyproject.toml").write_text("[tool.dpbench.compare]\nrounds = 0\n")
    code, _, err = call("compare", "--rounds", "1")
    assert (code, err.partition(": 0 is")[0]) == (2, "dpbench: pyproject.toml: tool.dpbench.compare.rounds")
    assert call("gate")[0] == 2
    assert call("list")[0] == 0
