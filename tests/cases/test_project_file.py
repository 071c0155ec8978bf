"""`[tool.dpbench]` in pyproject.toml: where it is found, what it may say, and which options it sets."""

from pathlib import Path

import pytest

from dpbench.cases.project_file import find_project_table
from dpbench.cli.command_line import project_defaults
from dpbench.gate.settings import load_settings

FULL = """
[tool.dpbench]
results = "out"
[tool.dpbench.compare]
variants = ["tuned[dispatch=threads,coalesce=false]", "naive"]
batch = [64, 128]
rounds = 3
budget = 90
[tool.dpbench.gate]
alarm_rate = "1%"
[[tool.dpbench.gate.benchmark]]
name = "one"
workload = "mlp/tiny"
batch = 8
threshold = "3%"
"""


def test_options_become_text_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text(FULL)
    monkeypatch.chdir(tmp_path)
    assert project_defaults("compare") == {
        "variants": "tuned[dispatch=threads,coalesce=false],naive",
        "batch": "64,128",
        "rounds": "3",
        "budget": "90",
        "results": "out/runs",
    }
    assert project_defaults("gate") == {"results": "out"}
    assert project_defaults("trace") == {"output": "out/runs"}
    assert project_defaults("list") == project_defaults(None) == {}


@pytest.mark.parametrize(
    ("place", "repository", "expected"),
    [("", None, "pyproject.toml"), ("a/b", "", "../../pyproject.toml"), ("a/b", None, None), ("a/b", "a", None)],
)
def test_parents_count_up_to_the_root_of_the_repository(
    tmp_path: Path, place: str, repository: str | None, expected: str | None
) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/pyproject.toml").write_text("[project]\n")  # without the table, it hides none
    (tmp_path / "pyproject.toml").write_text('[tool.dpbench]\nresults = "x"\n')
    if repository is not None:
        (tmp_path / repository / ".git").touch()  # a worktree has a file
    assert (find_project_table(tmp_path / place) or (None,))[0] == (expected and Path(expected))


def test_the_gate_reads_its_table(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(FULL)
    settings = load_settings(path)
    assert (settings.alarm_rate, [benchmark.name for benchmark in settings.benchmarks]) == (0.01, ["one"])


def test_a_command_without_options_there_does_not_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool")
    monkeypatch.chdir(tmp_path)
    assert project_defaults("list") == {}
