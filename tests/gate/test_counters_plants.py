"""Counted changes of the wrapper that a project tolerates by default, and some that it does not."""

import shutil

import pytest

from benchmarks.instruments.gate_plants import ROOT, Code
from dpbench.gate.count_sides import compare_records
from dpbench.gate.settings import Tolerances, read_settings
from dpbench.gate.tier0_cases import tier0_of, wrapper_jobs
from dpbench.gate.verdict import judged_counters
from dpbench.jobs.count import run_jobs
from tests.simulated import needs_simulator

TIER0 = tier0_of(read_settings(ROOT, None, ()), wrapper_jobs())
COUNTED = ("counts mlp/tiny cpu*4", "counts mlp/tiny sim:0+sim:1+sim:2+sim:3")
LOG = "__import__('logging').getLogger('x').isEnabledFor(10)"
CHANGES = {
    "a guard around a message of a log": ((LOG,), True),
    "three guards": ((LOG,) * 3, True),
    "forty guards": ((LOG,) * 40, False),
    "one operator more": (("inputs = tuple(x + 0 if hasattr(x, 'mean') else x for x in inputs)",), False),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    jobs = {}
    for name, lines in {"base": (), **{name: lines for name, (lines, _) in CHANGES.items()}}.items():
        folder = tmp_path_factory.mktemp("change")
        shutil.copytree(ROOT / "dpbench/parallel", folder / "dpbench/parallel")
        Code(lines=lines).write(folder)
        for case in COUNTED:
            jobs[name, case] = TIER0.jobs[case].model_copy(update={"folder": str(folder)})
    return dict(zip(jobs, run_jobs(list(jobs.values())), strict=True))


@needs_simulator
@pytest.mark.parametrize("name", CHANGES)
def test_a_little_work_of_the_host_is_tolerated(records, name):
    base, head = ({case: records[side, case] for case in COUNTED} for side in ("base", name))
    worse = [change for change in compare_records(base, head, TIER0) if change.is_worse]
    assert worse
    tolerated = judged_counters(worse, (), {}, Tolerances())
    assert all(change.tolerated for change in tolerated) is CHANGES[name][1], [c for c in tolerated if not c.tolerated]
    assert not any(change.tolerated for change in judged_counters(worse, (), {}, Tolerances(tolerated=0, memory=0)))
