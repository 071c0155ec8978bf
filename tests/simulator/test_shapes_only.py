"""A simulation without numbers records the same events as one with numbers."""

import json
import os
import subprocess
import sys
from itertools import product

import pytest

from tests.sampling import sampled
from tests.simulated import NO_GPU, needs_simulator

STEP = """
import json, sys
from dataclasses import asdict
from dpbench.measure.count_step import count
from dpbench.jobs.ranks import connector
from dpbench.simulator import simulate
from dpbench.cases.case import Case

variant, workload, numbers = sys.argv[1:]
simulate(2, numbers=bool(int(numbers)))
devices = ("sim:0", "sim:1")[: 1 if variant == "single" else 2]
_, recorded, _ = count(Case(variant=variant, workload=workload, batch=4, devices=devices, threads=1), connector(None))
assert recorded.model.parameters == len(recorded.model.parameter_sizes) > 0
lists, place = {}, {}
for event in recorded.events:
    is_memory = type(event).__name__ in ("Allocate", "Free")
    of_thread = lists.setdefault("memory" if is_memory else str(getattr(event, "thread", 0)), [])
    place[event.id] = f"{getattr(event, 'thread', 0)}.{len(of_thread)}"
    values = {"kind": type(event).__name__, **asdict(event), "id": None, "address": None}
    for name in ("inputs", "after"):
        values[name] = sorted(place.get(event_id, "before") for event_id in values.get(name, ()))
    of_thread.append(values)
if variant in ("torch_dp", "naive"):
    lists["memory"] = sorted(map(json.dumps, lists["memory"]))  # threads allocate in any order
print(json.dumps(lists))
"""
NEEDS = """
import sys, torch
from dpbench.simulator import simulate
simulate(1, numbers=False)
x = torch.ones(3, device="sim:0")
assert x.cpu().tolist() == [0, 0, 0] and "sim:0" in repr(x), repr(x)
for call in (x.sum().item, x.nonzero, x.tolist, lambda: x[x > 0], lambda: x.equal(x), lambda: bool(x[0] > 0)):
    try:
        call()
    except NotImplementedError as error:
        assert "needs numbers" in str(error), error
    else:
        raise AssertionError(call)
x[x > 0] = 2.0
try:
    simulate(1)
except RuntimeError as error:
    assert "numbers=False" in str(error)
else:
    raise AssertionError
"""


def run(script: str, *arguments: str) -> str:
    environment = {**NO_GPU, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=250)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@needs_simulator
@pytest.mark.parametrize(
    ("variant", "workload"),
    sampled(product(("torch_dp", "naive", "tuned", "single"), ("mlp", "convnet", "transformer", "embedding")), 2),
)
def test_the_events_are_those_of_a_simulation_with_numbers(variant, workload):
    shapes_only, expected = (json.loads(run(STEP, variant, f"{workload}/tiny", numbers)) for numbers in "01")
    assert shapes_only.keys() == expected.keys()
    for thread, events in expected.items():
        assert shapes_only[thread] == events
    assert ({"1", "2"} <= expected.keys()) == (variant in ("torch_dp", "naive"))


@needs_simulator
def test_what_needs_numbers_says_so():
    run(NEEDS)
