"""What every workflow keeps to: pinned actions, least rights, time limits, and no package from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())
READS = {"contents": "read"}
PERMISSIONS = {
    ("ci", "test"): READS,
    ("ci", "newest-torch"): READS,
    ("ci", "cuda-stand-in"): READS,
    ("ci", "wheel"): READS,
    ("gate", "measure"): READS,
    ("gate", "comment"): {"contents": "read", "pull-requests": "write"},
    ("release", "build"): READS,
    ("release", "publish"): {"id-token": "write"},
}
every = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read(path: Path) -> dict[Any, Any]:
    return dict(yaml.safe_load(path.read_text()))


def job(workflow: str, name: str) -> dict[str, Any]:
    return dict(read(ROOT / ".github" / "workflows" / f"{workflow}.yml")["jobs"][name])


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for each in read(path)["jobs"].values() for step in each["steps"]]


def using(found: list[dict[str, Any]], action: str) -> list[dict[str, Any]]:
    return [step for step in found if step.get("uses", "").startswith(f"{action}@")]


def test_these_are_all_workflows() -> None:
    assert {path.name for path in WORKFLOWS} == {f"{workflow}.yml" for workflow, _ in PERMISSIONS}


@every
def test_every_action_is_pinned_by_a_commit_with_its_version_beside_it(path: Path) -> None:
    lines = re.findall(r"uses: *(.*)", path.read_text())
    assert len(lines) == len([step for step in steps(path) if "uses" in step]) >= 4
    assert [each for each in lines if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


def test_an_action_has_one_version_in_all_workflows() -> None:
    pins: dict[str, set[str]] = {}
    for path in WORKFLOWS:
        for action, pin in re.findall(r"uses: *([\w/-]+)@(.*)", path.read_text()):
            pins.setdefault(action, set()).add(pin)
    assert {action: found for action, found in pins.items() if len(found) != 1} == {}


@every
def test_no_checkout_keeps_credentials(path: Path) -> None:
    found = using(steps(path), "actions/checkout")
    assert [step["with"].get("persist-credentials") for step in found] == [False] * len(found) != []


@every
def test_every_job_has_a_time_limit_and_the_least_permissions(path: Path) -> None:
    found = read(path)
    assert found["permissions"] == {}
    assert {name: each.get("permissions") for name, each in found["jobs"].items()} == {
        name: allowed for (workflow, name), allowed in PERMISSIONS.items() if workflow == path.stem
    }
    assert [name for name, each in found["jobs"].items() if not 0 < each.get("timeout-minutes", 0) <= 30] == []


@every
def test_commands_take_values_from_the_environment_and_not_from_expressions(path: Path) -> None:
    assert [step["run"] for step in steps(path) if "${{" in step.get("run", "")] == []


def test_no_second_index_serves_packages() -> None:
    texts = [*WORKFLOWS, *filter(Path.is_file, (ROOT / ".ci").iterdir()), ROOT / "Makefile"]
    assert [path.name for path in texts if re.search(r"extra.index.url", path.read_text(), re.IGNORECASE)] == []


@every
def test_packages_are_installed_by_the_makefile_alone(path: Path) -> None:
    assert "pip install" not in path.read_text()


def test_the_clone_reaches_the_commit_before_so_that_counts_are_compared() -> None:
    (checkout,) = using(job("ci", "test")["steps"], "actions/checkout")
    assert checkout["with"]["fetch-depth"] == 0
    assert "make gate-counters" in (ROOT / ".ci" / "run").read_text()


def test_the_job_that_may_comment_runs_none_of_the_pull_requests_code() -> None:
    found = job("gate", "comment")
    (checkout,) = using(found["steps"], "actions/checkout")
    assert checkout["with"]["ref"] == "${{ github.event.pull_request.base.sha }}"
    (command,) = [step for step in found["steps"] if "run" in step]
    assert command["run"] == 'python3 .ci/gate_comment.py comment/gate.md "$GITHUB_REPOSITORY" "$NUMBER"'
    assert command["env"]["NUMBER"] == "${{ github.event.pull_request.number }}"
    assert [step["uses"].partition("@")[0] for step in found["steps"] if "uses" in step] == [
        "actions/checkout",
        "actions/download-artifact",
    ]


def test_the_job_that_measures_gets_no_token() -> None:
    text = yaml.safe_dump(job("gate", "measure"))
    assert "token" not in text.lower()
    assert "secrets" not in text


def test_the_artifact_that_the_comment_is_read_from_is_the_one_that_was_measured() -> None:
    (download,) = using(job("gate", "comment")["steps"], "actions/download-artifact")
    uploads = using(job("gate", "measure")["steps"], "actions/upload-artifact")
    assert {"name": download["with"]["name"], "path": "gate.md"}.items() <= uploads[0]["with"].items()
    assert download["with"]["path"] == "comment"


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    linter = Path(sys.executable).with_name("zizmor")
    return subprocess.run([linter, "--offline", folder], capture_output=True, text=True, check=False)


def test_the_linter_of_workflows_finds_nothing_and_make_lint_runs_it() -> None:
    done = lint(ROOT / ".github" / "workflows")
    assert done.returncode == 0, done.stdout
    assert "$(BIN)/zizmor --offline" in (ROOT / "Makefile").read_text()


def test_the_linter_finds_an_action_without_a_commit(tmp_path: Path) -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    workflows = tmp_path / ".github" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "ci.yml").write_text(re.sub(r"checkout@[0-9a-f]{40} # ", "checkout@", text))
    done = lint(workflows)
    assert done.returncode != 0
    assert "unpinned-uses" in done.stdout
