"""What every workflow keeps to: pinned actions, least rights, time limits, and no package from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.repositories import git

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())
TEMPLATES = sorted((ROOT / "dpbench" / "gate" / "workflows").iterdir())
"""For other projects: `dpbench init --ci github` writes them."""
GATE, COMMENT = (ROOT / ".github" / "actions" / name / "action.yml" for name in ("gate", "comment"))
"""The actions that the templates use."""
READS = {"contents": "read"}
PERMISSIONS = {
    ("ci", "test"): READS,
    ("ci", "newest-torch"): READS,
    ("ci", "older-torch"): READS,
    ("ci", "cuda-stand-in"): READS,
    ("ci", "wheel"): READS,
    ("gate", "measure"): READS,
    ("dpbench", "gate"): READS,
    ("dpbench-comment", "comment"): {"actions": "read", "pull-requests": "write"},
    ("gate", "comment"): {"contents": "read", "pull-requests": "write"},
    ("weekly", "everything"): READS,
    ("weekly", "newest-torch"): READS,
    ("release", "build"): READS,
    ("release", "publish"): {"id-token": "write"},
}
every = pytest.mark.parametrize("path", [*WORKFLOWS, *TEMPLATES], ids=lambda path: path.stem)
with_steps = pytest.mark.parametrize("path", [*WORKFLOWS, GATE, COMMENT], ids=lambda path: f"{path.parts[-2:]}")
own = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
gates = pytest.mark.parametrize("path", [ROOT / ".github" / "workflows" / "gate.yml", GATE], ids=["own", "action"])


def read(path: Path) -> dict[Any, Any]:
    return dict(yaml.safe_load(path.read_text()))


def job(workflow: str, name: str) -> dict[str, Any]:
    return dict(read(ROOT / ".github" / "workflows" / f"{workflow}.yml")["jobs"][name])


def steps(path: Path) -> list[dict[str, Any]]:
    content = read(path)
    return [step for owner in content.get("jobs", {"": content.get("runs")}).values() for step in owner["steps"]]


def using(job_steps: list[dict[str, Any]], action: str) -> list[dict[str, Any]]:
    return [step for step in job_steps if step.get("uses", "").startswith(f"{action}@")]


def test_these_are_all_workflows() -> None:
    assert {path.name for path in [*WORKFLOWS, *TEMPLATES]} == {f"{workflow}.yml" for workflow, _ in PERMISSIONS}


@with_steps
def test_every_action_is_pinned_by_a_commit_with_its_version_beside_it(path: Path) -> None:
    lines = re.findall(r"uses: *(.*)", path.read_text())
    least = 1 if path == COMMENT else 2 if path.stem == "weekly" else 4
    assert len(lines) == len([step for step in steps(path) if "uses" in step]) >= least
    assert [line for line in lines if not re.fullmatch(r"[\w-]+(/[\w-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_an_action_has_one_version_in_all_workflows() -> None:
    pins: dict[str, set[str]] = {}
    for path in [*WORKFLOWS, GATE, COMMENT]:
        for action, pin in re.findall(r"uses: *([\w/-]+)@(.*)", path.read_text()):
            pins.setdefault(action, set()).add(pin)
    assert {action: versions for action, versions in pins.items() if len(versions) != 1} == {}


@with_steps
def test_no_checkout_keeps_credentials(path: Path) -> None:
    checkouts = using(steps(path), "actions/checkout")
    assert [step["with"].get("persist-credentials") for step in checkouts] == [False] * len(checkouts)
    assert bool(checkouts) is (path != COMMENT)  # what may write a comment runs none of the pull request's code


@every
def test_every_job_has_a_time_limit_and_the_least_permissions(path: Path) -> None:
    content = read(path)
    most = 350 if path.stem == "weekly" else 30  # GitHub ends a job after 360
    assert content["permissions"] == {}
    assert {name: fields.get("permissions") for name, fields in content["jobs"].items()} == {
        name: allowed for (workflow, name), allowed in PERMISSIONS.items() if workflow == path.stem
    }
    assert [name for name, fields in content["jobs"].items() if not 0 < fields.get("timeout-minutes", 0) <= most] == []


@with_steps
def test_commands_take_values_from_the_environment_and_not_from_expressions(path: Path) -> None:
    assert [step["run"] for step in steps(path) if "${{" in step.get("run", "")] == []


def test_no_second_index_serves_packages() -> None:
    texts = [*WORKFLOWS, *filter(Path.is_file, (ROOT / ".ci").iterdir()), ROOT / "Makefile"]
    assert [path.name for path in texts if re.search(r"extra.index.url", path.read_text(), re.IGNORECASE)] == []


@own
def test_packages_are_installed_by_the_makefile_alone(path: Path) -> None:
    assert "pip install" not in path.read_text()


def test_the_clone_reaches_the_commit_before_so_that_counts_are_compared() -> None:
    (checkout,) = using(job("ci", "test")["steps"], "actions/checkout")
    assert checkout["with"]["fetch-depth"] == 0
    assert "make gate-counters" in (ROOT / ".ci" / "run").read_text()


def test_the_job_that_may_comment_runs_none_of_the_pull_requests_code() -> None:
    comment = job("gate", "comment")
    (checkout,) = using(comment["steps"], "actions/checkout")
    assert checkout["with"]["ref"] == "${{ github.event.pull_request.base.sha }}"
    (command,) = [step for step in comment["steps"] if "run" in step]
    assert command["run"] == 'python3 .ci/gate_comment.py comment/gate.md "$GITHUB_REPOSITORY" "$NUMBER"'
    assert command["env"]["NUMBER"] == "${{ github.event.pull_request.number }}"
    assert [step["uses"].partition("@")[0] for step in comment["steps"] if "uses" in step] == [
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


@gates
@pytest.mark.parametrize(
    ("event", "verdict", "exit_code"),
    [
        *(("pull_request", verdict, 0 if verdict == 4 else verdict) for verdict in range(5)),
        *(("push", verdict, verdict if verdict in (2, 3) else 0) for verdict in range(5)),
    ],
)
def test_the_gates_step_fails_for_a_slower_pull_request_and_a_broken_gate(
    path: Path, event: str, verdict: int, exit_code: int, tmp_path: Path
) -> None:
    (step,) = [step for step in steps(path) if step.get("name") == "gate"]
    for folder in (".venv/bin", "venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
        dpbench = tmp_path / folder / "dpbench"
        dpbench.write_text(f'#!/bin/sh\nprintf "%s " "$@"\nexit {verdict}\n')
        dpbench.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "GITHUB_EVENT_NAME": event, "BASE": "HEAD~1", "RUNNER_TEMP": str(tmp_path)}
    environment |= {"BUDGET": "5m", "SETTINGS": "", "GITHUB_OUTPUT": str(tmp_path / "output")}
    script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (exit_code, "")
    judged = tmp_path / "dpbench" / "gate.json"
    printed = judged.read_text() if path == GATE else done.stdout
    assert printed.startswith("gate --base HEAD~1 --budget 5m --github ")
    if path == GATE:
        name = ("pass", "slower", "broken", "broken", "undecided")[verdict]
        assert (tmp_path / "output").read_text() == f"verdict={name}\njson={judged}\n"
        assert f"--settings {tmp_path}/trusted/pyproject.toml " in printed  # as no gate.toml is in the trusted branch


@gates
def test_the_history_is_saved_on_the_main_branch_alone_and_read_by_all(path: Path) -> None:
    """A cache that a pull request saves is visible to this pull request alone."""
    job_steps = steps(path)
    assert using(job_steps, "actions/cache") == []
    (restored,), (saved,) = using(job_steps, "actions/cache/restore"), using(job_steps, "actions/cache/save")
    assert "if" not in restored
    assert saved["if"] == "github.event_name == 'push'"
    history = "${{ runner.temp }}/dpbench/gate/history.jsonl" if path == GATE else "results/gate/history.jsonl"
    assert saved["with"]["path"] == restored["with"]["path"] == history
    assert saved["with"]["key"].startswith(restored["with"]["restore-keys"])


@pytest.mark.parametrize("is_package", [True, False])
def test_the_action_takes_packages_and_settings_from_the_base_branch(tmp_path: Path, is_package: bool) -> None:
    step, gate = (step for step in steps(GATE) if step.get("name") in ("install", "gate"))
    git(tmp_path, "init", "--quiet")
    (tmp_path / "pyproject.toml").write_text("[project]\n" if is_package else "[tool.x]\n")
    git(tmp_path, "add", "pyproject.toml")
    git(tmp_path, "commit", "--quiet", "-m", "branch")
    git(tmp_path, "tag", "trusted")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "pull request")
    pip = '#!/bin/sh\nprintf "%s\\n" "$*" >>"$0.calls"\n'
    (tmp_path / "python").write_text(
        '#!/bin/sh\n[ "$1" = -P ] || exit 9\nmkdir -p "$4/bin"\n'
        f'cat >"$4/bin/pip" <<"END"\n{pip}END\nchmod +x "$4/bin/pip"\n'
    )
    (tmp_path / "python").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "RUNNER_TEMP": str(tmp_path), "TRUSTED": "trusted"}
    environment |= {"GITHUB_ACTION_PATH": str(GATE.parent)}
    subprocess.run(["bash", "-e", "-c", step["run"]], check=True, cwd=tmp_path, env=environment)
    calls = (tmp_path / "venv" / "bin" / "pip.calls").read_text().splitlines()
    assert calls[-1] == f"install {ROOT}[suites]" + (f" {tmp_path}/trusted" if is_package else "")
    assert git(tmp_path / "trusted", "log", "-1", "--format=%s") == "branch"
    assert "$trusted/${SETTINGS:-benchmarks/gate.toml}" in gate["run"]
    assert (
        step["env"]["TRUSTED"]
        == "${{ github.event_name == 'push' && 'HEAD' || format('origin/{0}', github.base_ref) }}"
    )


def test_the_templates_run_the_actions_and_nothing_else() -> None:
    used = {path.stem: [step["uses"] for step in steps(path)] for path in TEMPLATES}
    place = f"OWNER/dpbench/.github/actions/{{}}@{'0' * 40}"
    assert used == {"dpbench": [place.format("gate")], "dpbench-comment": [place.format("comment")]}
    judges, comments = (read(TEMPLATES[0].with_name(f"{name}.yml")) for name in ("dpbench", "dpbench-comment"))
    assert comments[True]["workflow_run"]["workflows"] == [judges["name"]]  # YAML reads the key `on` as true
    for triggers in (judges[True], read(ROOT / ".github" / "workflows" / "gate.yml")[True]):
        assert (set(triggers), triggers["push"]["branches"]) == ({"pull_request", "push"}, ["main"])
    (upload,), (download,) = (
        using(steps(GATE), "actions/upload-artifact"),
        using(steps(COMMENT), "actions/download-artifact"),
    )
    assert upload["with"]["name"] == download["with"]["name"]


def lint(*paths: Path) -> subprocess.CompletedProcess[str]:
    linter = Path(sys.executable).with_name("zizmor")
    return subprocess.run([linter, "--offline", *paths], capture_output=True, text=True, check=False)


def test_the_linter_of_workflows_finds_nothing_and_make_lint_runs_it() -> None:
    for paths in ([ROOT / ".github"], *([path] for path in TEMPLATES)):
        done = lint(*paths)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "$(BIN)/zizmor --offline --quiet .github dpbench/gate/workflows/*.yml" in (ROOT / "Makefile").read_text()


def test_the_linter_finds_an_action_without_a_commit(tmp_path: Path) -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    workflows = tmp_path / ".github" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "ci.yml").write_text(re.sub(r"checkout@[0-9a-f]{40} # ", "checkout@", text))
    done = lint(workflows)
    assert done.returncode != 0
    assert "unpinned-uses" in done.stdout
