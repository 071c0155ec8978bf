"""What a release relies on and no other test runs: names, the tag, and the workflow's commands and environment."""

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import dpbench
from dpbench.doctor.child.packages import OURS

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "dist.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def test_the_distribution_has_its_own_name_and_the_command_keeps_its() -> None:
    assert PROJECT["name"] == OURS == "torch-dpbench"
    assert PROJECT["scripts"] == {"dpbench": "dpbench.__main__:main"}
    assert PROJECT["entry-points"]["pytest11"] == {"dpbench": "dpbench.pytest_plugin"}
    wanted = [requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra]
    assert [requirement for requirement in wanted if "dpbench" in requirement] == ["torch-dpbench[digits,suites]"]


def test_texts_name_no_extra_of_the_unrelated_project() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    texts = {name: (ROOT / name).read_text() for name in listed.stdout.splitlines()}
    wrong = re.compile(r"(?<!torch-)dpbench\[|(?<!torch-)dpbench @ ")
    del texts[str(Path(__file__).relative_to(ROOT))]
    assert not [name for name, text in texts.items() if wrong.search(text)]


def tag(name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--tag", name]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_tag_of_this_version_is_accepted() -> None:
    done = tag(f"v{dpbench.__version__}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", [dpbench.__version__, f"v{dpbench.__version__}.1", "v", ""])
def test_another_tag_is_refused(name: str) -> None:
    done = tag(name)
    assert done.returncode == 1
    assert f"the tag must be 'v{dpbench.__version__}'" in done.stderr


def test_the_environment_for_a_distribution_cannot_import_the_checkout(tmp_path: Path) -> None:
    python = runpy.run_path(str(SCRIPT))["environment"](tmp_path / "venv")
    code = "import pytest, torch.version; import dpbench"
    done = subprocess.run([python, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'dpbench'"


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    return dict(yaml.safe_load(WORKFLOW.read_text())["jobs"])


def test_the_workflow_starts_on_tags_of_versions_only() -> None:
    read = yaml.safe_load(WORKFLOW.read_text())
    assert read[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key `on` as True


def test_commands_take_names_from_the_environment_and_not_from_expressions(jobs: dict[str, Any]) -> None:
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert commands == ['python .ci/dist.py --tag "$GITHUB_REF_NAME"', "make dist"]


def test_the_build_uses_these_actions_once(jobs: dict[str, Any]) -> None:
    used = [step["uses"].partition("@")[0] for step in jobs["build"]["steps"] if "uses" in step]
    assert used == ["actions/checkout", "actions/setup-python", "actions/upload-artifact"]


def test_the_job_that_publishes_runs_no_command(jobs: dict[str, Any]) -> None:
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["environment"]["name"] == "pypi"
    assert [step["uses"].partition("@")[0] for step in jobs["publish"]["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
