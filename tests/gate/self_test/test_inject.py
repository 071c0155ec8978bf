"""The planted loop, run in a wrapper of two lines."""

import subprocess
import sys

import pytest

from dpbench.gate.self_test.inject import LOOPS, environment, plant

WRAPPER = """
class DataParallel:
    def forward(self, *inputs, **kwargs):
        return inputs, kwargs
"""
CALL = """
import builtins, sys
sys.path.insert(0, "dpbench")
from parallel import DataParallel
turns, usual = [], builtins.range
builtins.range = lambda count: turns.append(count) or ()
answer = DataParallel().forward(1, 2, key=3)
builtins.range = usual
print(turns, answer)
"""


@pytest.mark.parametrize(("variables", "turns"), [({}, 0), (environment(0), 0), (environment(70_000), 70_000)])
def test_each_forward_takes_so_many_turns_and_answers_as_before(tmp_path, variables, turns):
    (tmp_path / "dpbench/parallel").mkdir(parents=True)
    (tmp_path / "dpbench/parallel/__init__.py").write_text(WRAPPER)
    plant(tmp_path)
    command = [sys.executable, "-S", "-c", CALL]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == f"[{turns}] ((1, 2), {{'key': 3}})\n"


def test_the_variable_is_ours():
    assert environment(5) == {LOOPS: "5"}
    assert LOOPS.startswith("DPBENCH_")
