"""What this repository's gate counts beside steps: other uses of the wrapper, its start and its threads."""

import subprocess
import sys
import threading

import pytest
import torch

from benchmarks import wrapper_threads
from benchmarks.instruments.gate_plants import ROOT
from dpbench.engine.messages import CountJob
from dpbench.gate.settings import load_settings
from dpbench.jobs.count import run_jobs
from tests.simulated import needs_simulator


@pytest.mark.filterwarnings("ignore:replicas ran on several threads")
def test_callers_that_share_a_lock_cannot_meet():
    lock = threading.Lock()

    def locked(x):
        with lock:
            return x.clone()

    assert wrapper_threads._can_meet(torch.clone, torch.clone, 1, 5.0)
    assert wrapper_threads._can_meet(locked, torch.clone, 1, 5.0)
    assert wrapper_threads._can_meet(locked, locked, 0, 5.0)  # the batch is made before
    assert not wrapper_threads._can_meet(locked, locked, 1, 0.1)


def test_after_two_failures_a_lock_around_each_operator_costs_little(monkeypatch):
    waits_s = []
    monkeypatch.setattr(wrapper_threads, "_can_meet", lambda *_: (waits_s.append(_[3]), False)[1])
    assert wrapper_threads._apart(torch.clone, torch.clone, 5) == 5
    assert waits_s == [wrapper_threads._PATIENCE_S] * 2 + [wrapper_threads._LITTLE_S] * 3


@needs_simulator
def test_each_use_can_be_counted_and_is_counted_alike_each_time():
    cases = [uses.case(ROOT) for uses in load_settings(ROOT / "benchmarks/gate.toml").uses]
    records = run_jobs([CountJob(case=case) for case in cases] * 2)
    assert [record.reason for record in records] == [None] * len(records)
    counted = [record.counts.by_name() for record in records]
    assert counted[: len(cases)] == counted[len(cases) :]
    assert {name for counts in counted for name, value in counts.items() if name.endswith("absent") and value} == set()
    zeros = ("lanes.apart", "threads.left", "callers.apart_on_one_wrapper", "callers.apart_on_two_wrappers")
    assert [counted[0][f"uses.{name}"] for name in (*zeros, "choices.slower", "once_start.modules")] == [0] * 6
    assert counted[1]["uses.two_forwards.host_operators"] > counted[1]["uses.toggled.host_operators"] > 0


START = """
import dpbench.engine.messages
import dpbench.measure.counted.with_torch
import {loaded}
from benchmarks.wrapper_threads import USES
counted = USES["once_start"](["cpu"])
assert counted["modules"] == 0, counted
assert counted["first_forward_calls"] > counted["construction_calls"] > 0
"""


@pytest.mark.parametrize("loaded", ["torch", "torch._dynamo"])
def test_a_wrapper_adds_no_modules_to_those_of_torch(loaded):
    subprocess.run([sys.executable, "-c", START.format(loaded=loaded)], check=True, cwd=ROOT)
