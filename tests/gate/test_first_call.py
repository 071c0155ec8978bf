"""Benchmarks that call once in each process: the first call is what they measure, and there may be no second one."""

from statistics import median

import pytest

from dpbench.engine.messages import LockstepJob, LockstepJobs, Side, SideName
from dpbench.jobs.lockstep_child import respond
from dpbench.records.record import Outcome
from tests.gate.foreign_suites import case_of, counted, listed, write_suite

ONCE = """
import time
used = []
def one(i): return i
def once():
    assert not used, "a second call"
    used.append(1)
    time.sleep({sleep_s})
    return sum(map(one, range({calls})))
"""
ASV = """
class First:
    number, repeat, warmup_time = 1, 1, 0
    def time_first(self): once()
def time_often(): pass
"""
PYTEST = """
def test_first(benchmark):
    assert benchmark.pedantic(once, rounds=1) == {calls} * ({calls} - 1) // 2
    assert len(benchmark.stats.stats.data) == 1

def test_often(benchmark): benchmark.pedantic(list, rounds=2)
"""
SUITES = {"asv": ("suite/b.py", ASV, "b.First.time_first"), "pytest": ("test_b.py", PYTEST, "test_b.py::test_first")}


@pytest.mark.parametrize("suite", SUITES)
def test_a_first_call_is_counted_and_timed_in_a_process_of_its_own(tmp_path, suite):
    file, text, name = SUITES[suite]
    folders = {}
    for side, fields in {"base": {"calls": 3, "sleep_s": 0.01}, "head": {"calls": 9, "sleep_s": 0.02}}.items():
        folders[side] = write_suite(tmp_path / side, {file: (ONCE + text).format(**fields)})
    where = "." if suite == "asv" else file
    meant = {one.name: (one.refused, one.is_first_call) for one in listed(folders["base"], suite, where).meant}
    assert meant == {name: (None, True), name.replace("First.", "").replace("first", "often"): (None, False)}

    records = [counted(folder, f"{suite} {name}")[0].counts.by_name() for folder in folders.values()]
    assert [counts.keys() for counts in records] == [{"forward.python_calls"}] * 2
    assert records[1]["forward.python_calls"] - records[0]["forward.python_calls"] == 9 - 3

    base, head = (Side(folder=str(folder)) for folder in folders.values())
    sides = {SideName.BASE: base, SideName.TWIN: base, SideName.HEAD: head}
    own = {"cores": (0,), "blocks": 4, "block_s": 0.005, "timeout_s": 60.0, "seed": 1}
    job = LockstepJob(benchmark=name, case=case_of(f"{suite} {name}"), sides=sides, **own)
    (taken,) = respond(LockstepJobs(jobs=(job,))).rounds
    assert taken.outcome is Outcome.OK, taken.reason
    times_s = {side: median(step_s for block in blocks for step_s in block) for side, blocks in taken.times_s.items()}
    assert 0.01 < times_s[SideName.BASE] < 0.018 < times_s[SideName.HEAD]
