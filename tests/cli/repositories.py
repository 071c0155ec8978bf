"""Throw-away git repositories that hold a copy of the wrapper, and gates of their commits."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WRAPPER = Path("dpbench/parallel")
MODULE, INIT = WRAPPER / "module.py", WRAPPER / "__init__.py"
FORWARD = "    def forward(self, *inputs: Any, **kwargs: Any) -> Any:\n"
GATHERED = "            return self.gather(outputs, self.output_device)\n"

SETTINGS = """
alarm_rate = 0.2

[[benchmark]]
name = "tiny"
workload = "mlp/tiny"
batch = 8
devices = "cpu*2"
variant = "tuned[dispatch=sequence]"
threshold = "20%"
"""

# A complete gate in less time: fewer blocks, an earlier verdict, and one case to count.
QUICK = """
import sys
from dpbench.cli import main
from dpbench.gate import tier0_cases as cases
from dpbench.gate import rounds
from dpbench.gate import time_verdict
from dpbench.judge import repeated
rounds.BLOCKS, time_verdict.FIRST_ANALYSIS, repeated.FIRST_ANALYSIS = 4, 3, 3
checked = cases.checked_cases
cases.checked_cases = lambda: [case for case in checked() if case.workload == "mlp/tiny" and "sim:1" in case.devices]
main()
"""


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=e@x")
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def edited(folder: Path, file: Path, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))


def commit(folder: Path, tag: str) -> None:
    """Commit and tag all files. Then set the working tree back to `base`, where the next commit begins too."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", f"the {tag} one")
    git(folder, "tag", tag)
    git(folder, "checkout", "--quiet", "--detach", "base")


def make_repository(folder: Path) -> None:
    """Tag base, and on it equal, slow (a loop in each forward), more (one operator), broken, without."""
    shutil.copytree(ROOT / WRAPPER, folder / WRAPPER, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "gate.toml").write_text(SETTINGS)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder, "base")
    commit(folder, "equal")
    edited(folder, MODULE, FORWARD, f"{FORWARD}        for _ in range(40_000):\n            pass\n")
    commit(folder, "slow")
    edited(folder, MODULE, GATHERED, GATHERED.replace(")\n", ").clone()\n"))
    commit(folder, "more")
    (folder / INIT).write_text("def (:\n")
    commit(folder, "broken")
    shutil.rmtree(folder / WRAPPER)
    commit(folder, "without")
    git(folder, "checkout", "--quiet", "main")


def command(*words: object, quick: bool = True) -> list[str]:
    start = ["-P", "-c", QUICK] if quick else ["-P", "-m", "dpbench"]
    return [sys.executable, *start, "gate", *map(str, words)]


def environment(temporary: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
