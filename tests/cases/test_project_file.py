"""`[tool.dpbench]` in pyproject.toml: where it is found, what it may say, and which options it sets."""

from pathlib import Path

import pytest

from dpbench.cases.project_file import find_project_table
from dpbench.cli.command_line import project_defaults
from dpbench.errors import WrongInputError
from dpbench.gate.settings import SettingsError, load_settings

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
    ("place", "repository", "found"),
    [("", None, "pyproject.toml"), ("a/b", "", "../../pyproject.toml"), ("a/b", None, None), ("a/b", "a", None)],
)
def test_parents_count_up_to_the_root_of_the_repository(
    tmp_path: Path, place: str, repository: str | None, found: str | None
) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/pyproject.toml").write_text("[project]\n")  # without the table, it hides none
    (tmp_path / "pyproject.toml").write_text('[tool.dpbench]\nresults = "x"\n')
    if repository is not None:
        (tmp_path / repository / ".git").touch()  # a worktree has a file
    assert (find_project_table(tmp_path / place) or (None,))[0] == (found and Path(found))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[tool", "is not TOML: "),
        ("tool = 3", "tool: 3 is not allowed; allowed: a table"),
        ("tool.dpbench = []", "dpbench: [] is not allowed; allowed: a table"),
        ("tool.dpbench.reslts = 1", "tool.dpbench.reslts: unknown key, did you mean 'results'?; allowed: results, "),
        ("tool.dpbench.results = 1", "tool.dpbench.results: 1 is not allowed; allowed: text: a folder"),
        ('tool.dpbench.results = "\\u0000"', "tool.dpbench.results: '\\x00' is not allowed"),
        ("tool.dpbench.compare = 1", "tool.dpbench.compare: 1 is not allowed; allowed: a table with options"),
        ("tool.dpbench.compare.case_time = 1", "tool.dpbench.compare.case_time: unknown key; allowed: variants, "),
        ("tool.dpbench.compare.bach = [1]", "tool.dpbench.compare.bach: unknown key, did you mean 'batch'?"),
        ("tool.dpbench.compare.batch = 64", "tool.dpbench.compare.batch: 64 is not allowed; allowed: a list of whole"),
        ("tool.dpbench.compare.variants = ['tunde']", "tool.dpbench.compare.variants: 'tunde' is no variant, did you"),
        ("tool.dpbench.compare.budget = 'soon'", "tool.dpbench.compare.budget: 'soon' is no duration"),
        ("", "has no [tool.dpbench.gate]; allowed: "),
        ("[tool.dpbench]", "has no [tool.dpbench.gate]; allowed: "),
        ("tool.dpbench.gate.alarm = 1", "tool.dpbench.gate: alarm: unknown key, did you mean 'alarm_rate'?"),
        ("tool.dpbench.gate.alarm_rate = 7", "tool.dpbench.gate: alarm_rate: 7 is not allowed; allowed: a share"),
    ],
)
def test_a_wrong_field_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: str) -> None:
    Path(tmp_path, "pyproject.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    if "gate" not in line:
        with pytest.raises(WrongInputError) as raised:
            project_defaults("compare")
        assert str(raised.value).startswith(f"pyproject.toml: {line}")
    with pytest.raises(SettingsError) as refused:
        load_settings(Path("pyproject.toml"))
    assert str(refused.value).startswith(f"pyproject.toml: {line}")
    assert "\n" not in str(refused.value)
    assert project_defaults("list") == {}


def test_the_gate_reads_its_table(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(FULL)
    settings = load_settings(path)
    assert (settings.alarm_rate, [each.name for each in settings.benchmarks]) == (0.01, ["one"])
