"""Give the cases of the gate's self-test to asv and to pytest-benchmark, each used as its users do.

    python -m benchmarks.gate_peers --times 6 --self-test results/gate/self-test-HOST.json

A temporary repository has a commit for each condition: the wrapper as it is, and with a loop injected into its forward
that takes 5 % or 10 % of a step of `launch_bound`. The gate's benchmarks on one core are written in each tool's own
way. A tool says "slower" by its exit code:

    asv continuous BASE HEAD
    pytest --benchmark-compare --benchmark-compare-fail=mean:5%     after a saved run of base
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.about import heading
from dpbench.gate.self_test.inject import LOOPS, environment_of, inject_slowdown, loops_per_step
from dpbench.gate.self_test.result import SelfTest
from dpbench.gate.self_test.trials import Condition
from dpbench.gate.settings import DEFAULT_BENCHMARKS, Cores
from dpbench.gate.take_round import Sides, SuiteRound, take_round
from dpbench.run.launch import launch
from dpbench.stats.binomial import clopper_pearson

ROOT = Path(__file__).parents[1]
CONDITIONS = {Condition.EQUAL: "equal", Condition.SLOWER_5: "slower_5", Condition.SLOWER_10: "slower_10"}
"""The tag of each condition's commit."""
BENCHMARKS = [benchmark for benchmark in DEFAULT_BENCHMARKS if benchmark.cores is Cores.ONE]

_STEP = """
import torch
from dpbench.measure.session import open_session
from dpbench.sweep.case import Case
from dpbench.variants.registry import variant_of
from dpbench.workloads.resolve import resolve

CASES = {cases!r}


def step_of(name):
    torch.set_num_threads(1)
    case = Case.model_validate_json(CASES[name])
    return open_session(case).step
"""
_ASV = (
    _STEP
    + """

class Step:
    params = list(CASES)
    param_names = ["benchmark"]

    def setup(self, name):
        self.step = step_of(name)
        self.step()

    def time_step(self, name):
        self.step()
"""
)
_PYTEST = (
    _STEP
    + """

import pytest


@pytest.mark.parametrize("name", list(CASES))
def test_step(benchmark, name):
    step = step_of(name)
    step()
    benchmark(step)
"""
)


class Repository:
    """A git repository in `folder`: the harness of this checkout, and a tagged commit of the wrapper per condition."""

    def __init__(self, folder: Path, loops: int) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "dpbench", folder / "dpbench", ignore=ignored)
        shutil.copytree(ROOT / "benchmarks", folder / "benchmarks", ignore=ignored)
        shutil.rmtree(folder / "benchmarks/asv_suite")
        cases = {benchmark.name: benchmark.case(1, ()).model_dump_json() for benchmark in BENCHMARKS}
        for name, text in (("asv_suite/__init__.py", ""), ("asv_suite/step.py", _ASV), ("test_step.py", _PYTEST)):
            path = folder / "benchmarks" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.format(cases=cases) if text else "")
        shutil.copy(ROOT / "asv.conf.json", folder)
        self.run("git", "init", "--quiet", "--initial-branch", "main")
        self._commit("base")
        inject_slowdown(folder)
        injected = (folder / "dpbench/parallel/__init__.py").read_text()
        for condition, name in CONDITIONS.items():
            count = round(loops * condition.slowdown)
            text = injected.replace(f'os.environ.get("{LOOPS}", "0")', f'"{count}"')
            (folder / "dpbench/parallel/__init__.py").write_text(f"{text}\n# {name}\n")
            self._commit(name)
        self.run(sys.executable, "-m", "asv", "machine", "--yes")

    def run(self, *command: str) -> int:
        environment = {**os.environ, "HOME": str(self.folder.parent), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.returncode

    def checkout(self, name: str) -> None:
        self.run("git", "checkout", "--quiet", name)

    def _commit(self, name: str) -> None:
        self.run("git", "add", "--all")
        self.run("git", "-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "--quiet", "-m", name)
        self.run("git", "tag", name)


def asv_says_slower(repository: Repository, condition: Condition) -> bool:
    repository.checkout("main")
    shutil.rmtree(repository.folder / "results", ignore_errors=True)  # else asv adds to its old results
    return repository.run(sys.executable, "-m", "asv", "continuous", "base", CONDITIONS[condition]) == 1


def pytest_says_slower(repository: Repository, condition: Condition) -> bool:
    shutil.rmtree(repository.folder / ".benchmarks", ignore_errors=True)
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:dpbench", "--rootdir=.", "benchmarks/test_step.py")
    repository.checkout("base")
    repository.run(*pytest, "--benchmark-save=base")
    repository.checkout(CONDITIONS[condition])
    return repository.run(*pytest, "--benchmark-compare", "--benchmark-compare-fail=mean:5%") == 1


TOOLS: dict[str, Callable[[Repository, Condition], bool]] = {
    "asv continuous": asv_says_slower,
    "pytest-benchmark mean:5%": pytest_says_slower,
}


def loops_of_a_step() -> int:
    """Return how many iterations of the injected loop take as long as a step of launch_bound."""
    with tempfile.TemporaryDirectory() as folder:
        slowed = Path(folder) / "slowed"
        shutil.copytree(ROOT / "dpbench/parallel", slowed / "dpbench/parallel")
        inject_slowdown(slowed)

        def take(loops: Mapping[str, int], number: int) -> SuiteRound:
            sides = Sides(ROOT, slowed, {name: environment_of(count) for name, count in loops.items()})
            return take_round(BENCHMARKS[:1], sides, number, (), launch)

        loops = loops_per_step([BENCHMARKS[0].name], take, lambda _: None)
    return round(loops[BENCHMARKS[0].name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=6, help="runs of each tool under each condition")
    parser.add_argument(
        "--self-test", type=Path, required=True, help="result of the gate's self-test, results/gate/self-test-HOST.json"
    )
    options = parser.parse_args()
    ours = SelfTest.model_validate_json(options.self_test.read_bytes())
    print(heading("benchmarks.gate_peers"))
    found = {(tool, condition): [] for tool in TOOLS for condition in CONDITIONS}
    with tempfile.TemporaryDirectory() as folder:
        repository = Repository(Path(folder) / "repository", loops_of_a_step())
        for number in range(options.times):
            for (tool, condition), said in found.items():
                start_s = time.monotonic()
                said.append(TOOLS[tool](repository, condition))
                took_s = time.monotonic() - start_s
                print(
                    f"{number + 1}: {tool}, {condition}: {'slower' if said[-1] else 'no'}, {took_s:.0f} s", flush=True
                )
    counts = {key: (sum(said), len(said)) for key, said in found.items()}
    for each in ours.tested:
        if each.condition in CONDITIONS:
            counts["dpbench gate", each.condition] = each.whole.slower, each.whole.gates
            counts["dpbench gate, drawn", each.condition] = each.drawn.slower, each.drawn.gates
    print(f"\n{'head is':12} {'tool':25} {'says slower':14} 95 % interval")
    for tool, condition in sorted(counts, key=lambda key: list(CONDITIONS).index(key[1])):
        slower, of = counts[tool, condition]
        low, high = clopper_pearson(slower, of)
        print(f"{condition:12} {tool:25} {f'{slower} of {of}':14} {low:.1%} to {high:.1%}")


if __name__ == "__main__":
    main()
