"""A temporary repository that the real asv follows."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.zygote import children_of_a_zygote  # noqa: F401  # a fixture

ROOT = Path(__file__).parents[2]
SLEEP = "        import time; time.sleep(0.3)\n"
FORWARD = "    def forward(self, *inputs: Any, **kwargs: Any) -> Any:\n"
ONE_CASE = r"step_time.*'tuned', 'mlp/small', 64, 2\)"


@dataclass(frozen=True)
class Asv:
    """The repository in `folder`.

    `commits` are hashes by name, and `outputs` what asv printed, by command.
    """

    folder: Path
    commits: dict[str, str]
    outputs: dict[str, str]

    def call(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self._run(sys.executable, "-m", "asv", *words, check=check)

    def dpbench(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self._run(sys.executable, "-m", "dpbench", *words, check=check)

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
        return self._run("git", *identity, *words).stdout.strip()

    def _run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(self.folder.parent), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=280
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done


@pytest.fixture(scope="session")
def asv(tmp_path_factory):
    """Return a repository of four commits that hold nothing but the wrapper.

    The first has no wrapper, the second today's, the third one with an injected slowdown, and the fourth still has it.
    Harness, suite and workloads are only in the working tree, so asv would fail if it took them from a commit. asv
    compares the second and third commit, and runs the first and fourth.
    """
    folder = tmp_path_factory.mktemp("asv") / "repository"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "dpbench", folder / "dpbench", ignore=ignored)
    shutil.copytree(ROOT / "benchmarks", folder / "benchmarks", ignore=ignored)
    shutil.copy(ROOT / "asv.conf.json", folder)
    commits, outputs = {}, {}
    repository = Asv(folder, commits, outputs)
    repository.git("init", "--quiet", "--initial-branch", "main")
    module = folder / "dpbench/parallel/module.py"
    as_it_is = module.read_text()
    slow = as_it_is.replace(FORWARD, FORWARD + SLEEP)
    assert slow != as_it_is
    repository.git("commit", "--quiet", "--allow-empty", "-m", "none")
    commits["none"] = repository.git("rev-parse", "HEAD")
    for name, text in (("fast", as_it_is), ("slow", slow), ("slow still", f"{slow}# and a line\n")):
        module.write_text(text)
        repository.git("add", "dpbench/parallel")
        repository.git("commit", "--quiet", "-m", name)
        commits[name] = repository.git("rev-parse", "HEAD")
    module.write_text("raise RuntimeError('the wrapper of the working tree')\n")
    repository.dpbench("asv-machine", "--machine", "here")
    two_rounds = ("--machine", "here", "--attribute", "rounds=2", "--bench", ONE_CASE, "--show-stderr")
    compared = repository.call("continuous", *two_rounds, commits["fast"], commits["slow"], check=False)
    outputs["continuous"] = compared.stdout + compared.stderr
    (folder / "commits").write_text("\n".join([commits["none"], commits["slow still"]]))
    outputs["run"] = repository.call("run", *two_rounds, "HASHFILE:commits").stdout
    return repository
