"""A training step's copies and host calls are those that the simulator counts for the same step."""

import json
import os
import subprocess
import sys
from functools import cache

import pytest
import torch

from dpbench.cases.case import Case
from dpbench.cases.variants import VariantId, VariantName
from dpbench.measure.session import open_session
from dpbench.parallel import links as links_module
from tests.cuda_stand_in import control
from tests.on_cuda.translated import ROOT
from tests.simulated import needs_simulator

pytestmark = needs_simulator
COUNT = torch.cuda.device_count()
ROUTE = "chain" if COUNT > 2 else "star"  # what "auto" takes depends on times, which the stand-in has not
BATCH = 16
WORKLOADS = ["mlp/tiny", "convnet/tiny"]
STEPS_BEFORE = 2
"""As `dpbench counts`: the third step is counted."""
CALLS = {"event_record": "programs_events", "stream_wait": "programs_waits", "record_stream": "record_streams"}
"""The simulator's names and the stand-in's."""


@cache
def simulated():
    """Return the copies by link and the host's calls of a whole step of each workload, as the simulator counts them."""
    words = (
        "counts",
        "--variants",
        f"tuned[route={ROUTE}]",
        "--workloads",
        ",".join(WORKLOADS),
        "--batch",
        str(BATCH),
        "--json",
    )
    done = subprocess.run(
        [sys.executable, "-m", "dpbench", *words, "--devices", f"sim*{COUNT}"],
        cwd=ROOT,
        env={**os.environ, "DPBENCH_CUDA_DEVICES": "0"},  # the simulator wants a machine without accelerators
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cases = [case for case in json.loads(done.stdout)["cases"] if case["devices"][0] == "sim:0"]
    return {case["workload"]: of_a_step(case["counts"]["phases"].values()) for case in cases}


def of_a_step(phases):
    links, calls = {}, {}
    for phase in phases:
        for link, traffic in phase["copies"].items():
            before = links.get(link, (0, 0))
            links[link] = (before[0] + traffic["count"], before[1] + traffic["size_bytes"])
        for name, number in phase["host_calls"].items():
            calls[name] = calls.get(name, 0) + number
    return {link.replace("sim:", "cuda:"): traffic for link, traffic in links.items()}, calls


@pytest.fixture(autouse=True)
def _links_are_alike(monkeypatch):
    """Let a chain keep the caller's order: the stand-in's links have no rates of their own."""
    monkeypatch.setattr(links_module, "rate_between", lambda *_: None)


def seen(workload):
    """Return the same of a step on the stand-in."""
    case = Case(
        variant=VariantId(VariantName.TUNED).with_parameters(dispatch="sequence", route=ROUTE),
        workload=workload,
        batch=BATCH,
        devices=tuple(f"cuda:{index}" for index in range(COUNT)),
        threads=1,
    )
    session = open_session(case)
    for _ in range(STEPS_BEFORE):
        session.step()
        for index in range(COUNT):
            torch.cuda.synchronize(index)
    before, copies_before = control.counts(), control.copies()
    session.step()
    calls = {name: number - before[name] for name, number in control.counts().items()}
    links = {
        link: tuple(now - then for now, then in zip(traffic, copies_before.get(link, (0, 0)), strict=True))
        for link, traffic in control.copies().items()
    }
    return {link: traffic for link, traffic in links.items() if traffic[0]}, calls


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_steps_copies_and_calls_are_those_of_the_simulator(workload):
    (links, calls), (wanted_links, wanted_calls) = seen(workload), simulated()[workload]
    print(f"{workload} on {COUNT} devices: {calls}; simulator: {wanted_calls}")  # noqa: T201
    assert links == wanted_links
    assert {name: calls[ours] for name, ours in CALLS.items()} == {name: wanted_calls[name] for name in CALLS}
    assert calls["host_waits"] == 0
