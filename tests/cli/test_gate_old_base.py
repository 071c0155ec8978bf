"""The gate takes `dpbench.parallel` from a commit whose harness had other files and other names."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.repositories import environment
from tests.simulated import needs_simulator

ROOT = Path(__file__).parents[2]
OLD = "8ca9ec8829b94f0ab5f7d56906613c0fe80dcaa1"
"""The last commit before the packages of the harness were redrawn."""

SETTINGS = """
[[benchmark]]
name = "tiny"
workload = "mlp/tiny"
batch = 8
devices = "cpu*2"
threshold = "20%"
"""

# The whole command, but only one workload of those that a gate counts: no option restricts these.
ONE_WORKLOAD = """
from dpbench.cli import main
from dpbench.gate import tier0_cases as cases
checked = cases.checked_cases
cases.checked_cases = lambda: [case for case in checked() if case.workload == "mlp/tiny"]
cases.gate_cases = cases.growth_cases = tuple
main()
"""


def commit_of(revision):
    """The full hash of a commit of this checkout, or None without git, a repository or the commit."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@pytest.fixture
def head():
    if commit_of(OLD) is None:
        pytest.skip(f"this clone has no commit {OLD[:7]}: it is shallow, or a copy without .git")
    return commit_of("HEAD")


@pytest.mark.exhaustive
@needs_simulator
def test_the_gate_compares_head_with_a_commit_of_the_old_layout(head, tmp_path):
    (tmp_path / "gate.toml").write_text(SETTINGS)
    (tmp_path / "temporary").mkdir()
    words = ("--base", OLD[:7], "--tiers", "0", "--budget", "100s", "--json")
    files = ("--settings", tmp_path / "gate.toml", "--results", tmp_path / "results")
    done = subprocess.run(
        [sys.executable, "-P", "-c", ONE_WORKLOAD, "gate", *words, *map(str, files)],
        cwd=ROOT,
        env=environment(tmp_path / "temporary"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1, 2), done.stderr
    judgement = json.loads(done.stdout)
    assert judgement["exit_code"] == done.returncode
    assert judgement["base"]["commit"] == OLD
    assert judgement["head"]["commit"] == head
    assert judgement["counted_cases"] == 2  # on simulated devices and on CPU lanes
    assert judgement["notes"] == [] or all("files differ from HEAD" in note for note in judgement["notes"])
    if judgement["verdict"] == "slower":
        assert [change["counter"] for change in judgement["counters"] if change["is_worse"]]
    assert list((tmp_path / "temporary").glob("dpbench*")) == []
