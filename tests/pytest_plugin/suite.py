"""A suite as a user has it; its steps take the times that the test sets."""

FAKE = """
time_s, step_s = 0.0, {step_s}

def timer():
    return time_s

def step():
    global time_s, steps
    steps += 1
    time_s += step_s * (1 + 0.01 * (steps % 3))
    return steps

steps = 0
"""
SUITE = """
import pytest
from fake import step

@pytest.mark.dp_threshold({threshold})
def {name}(dp_benchmark):
    assert dp_benchmark(step, devices=["cpu", "cpu"], rounds=20, warmup_rounds=3, count=False) == 23
"""
