"""A gate of a script: base and head are counted, and the line behind a worse counter is named."""

import json
import subprocess

import pytest

from benchmarks.instruments.communication_plants import SCRIPTS
from dpbench.gate.settings import ScriptBenchmark, load_settings
from tests.cli.repositories import command, commit, edited, environment, git
from tests.old_torch import needs_operations

STEP = "    optimizer.step()\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A repository whose commits are tagged base, more, lines, fails, and new."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "gate.toml").write_text('[[benchmark]]\nscript = "src/train.py"\nsteps = 8\n')
    (folder / "new.toml").write_text('[[benchmark]]\nscript = "new.py"\nsteps = 8\n')
    (folder / "src").mkdir()
    (folder / "src/train.py").write_text((SCRIPTS / "ddp.py").read_text() + "import parts\n")
    (folder / "src/parts.py").write_text("")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder, "base")
    for tag, new in {
        "more": f"    dist.barrier()\n{STEP}",
        "lines": f"    step += 1\n{STEP}",
        "fails": "    1 / 0\n",
    }.items():
        edited(folder, "src/train.py", STEP, new)
        commit(folder, tag)
    (folder / "new.py").write_text((SCRIPTS / "ddp.py").read_text())
    commit(folder, "new")
    git(folder, "checkout", "--quiet", "main")
    return folder


@needs_operations
@pytest.mark.parametrize(
    ("words", "code", "lines"),
    [
        ("--head more --settings gate.toml --tiers 0,1", 1, ["step.optimizer.barrier.count 0 -> 1", "src/train.py:22"]),
        ("--head lines --settings gate.toml --tiers 0", 0, ["no counter is worse"]),
        (
            "--head fails --settings gate.toml --tiers 0",
            3,
            ["ZeroDivisionError", "train.py, line 22"],
        ),
        ("--head lines --settings gate.toml --tiers 1", 2, ["--tiers: 1 judges no script; allowed: tiers with 0"]),
        ("--head lines --settings new.toml --tiers 0", 3, ["script: 'new.py': head has no such file"]),
        ("--head new --settings new.toml --tiers 0", 0, ["new, with nothing to hold it against: new.py"]),
    ],
)
def test_the_verdict_on_a_script(project, tmp_path, words, code, lines):
    done = subprocess.run(
        command(*words.split(), "--base", "base", "--json", "--results", tmp_path / "results", quick=False),
        cwd=project,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    why = done.stdout and json.loads(done.stdout)["why"]
    assert all(line in why or line in done.stderr for line in lines), (why, done.stderr)


def test_scripts_replace_the_default_benchmarks(tmp_path):
    (tmp_path / "gate.toml").write_text('[[benchmark]]\nscript = "a.py"\nargs = ["--tiny"]\nranks = 3\n')
    settings = load_settings(tmp_path / "gate.toml")
    assert settings.scripts == (ScriptBenchmark(script="a.py", args=("--tiny",), ranks=3),)
    assert (settings.benchmarks, settings.scripts[0].name) == ((), "a.py --tiny")
