"""The injected loop, run in a wrapper of two lines."""

import subprocess
import sys

import pytest

from dpbench.gate.self_test.inject import LOOPS, environment_of, inject_slowdown

WRAPPER = """
class DataParallel:
    def forward(self, *inputs, **kwargs):
        return inputs, kwargs
"""
CALL = """
import builtins, sys
sys.path.insert(0, "dpbench")
from parallel import DataParallel
loops, original = [], builtins.range
builtins.range = lambda count: loops.append(count) or ()
answer = DataParallel().forward(1, 2, key=3)
builtins.range = original
print(loops, answer)
"""


@pytest.mark.parametrize(("variables", "loops"), [({}, 0), (environment_of(0), 0), (environment_of(70_000), 70_000)])
def test_each_forward_runs_the_loop_and_returns_the_same_as_before(tmp_path, variables, loops):
    (tmp_path / "dpbench/parallel").mkdir(parents=True)
    (tmp_path / "dpbench/parallel/__init__.py").write_text(WRAPPER)
    inject_slowdown(tmp_path)
    command = [sys.executable, "-S", "-c", CALL]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == f"[{loops}] ((1, 2), {{'key': 3}})\n"


def test_the_variable_has_the_prefix_of_dpbench():
    assert environment_of(5) == {LOOPS: "5"}
    assert LOOPS.startswith("DPBENCH_")
