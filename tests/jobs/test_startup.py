"""Real start-ups of a wrapper with a pause in its import, in its construction or in its first forward."""

import os
import shutil
from pathlib import Path
from statistics import median

import pytest

from dpbench.cases.case import Case
from dpbench.engine.messages import LockstepJobs, LockstepRounds, Side, SideName, StartUpJob, Timed
from dpbench.gate.rounds import LOCKSTEP
from dpbench.records.record import Outcome

ROOT = Path(__file__).parents[2]
PAUSE_S = 0.4
PARTS = (Timed.IMPORT, Timed.CONSTRUCTION, Timed.FIRST_FORWARD)
PAUSES = f"""
import os as _os, time as _time

def _pause(part):
    if _os.environ.get("DPBENCH_TEST_PAUSE") == part:
        _time.sleep({PAUSE_S})

_init, _forward = DataParallel.__init__, DataParallel.forward
DataParallel.__init__ = lambda self, *a, **k: (_pause("construction"), _init(self, *a, **k))[0]
DataParallel.forward = lambda self, *a, **k: (_pause("first_forward"), _forward(self, *a, **k))[1]
if _os.environ.get("DPBENCH_TEST_PAUSE") == "broken":
    raise RuntimeError("not today")
_pause("import")
"""


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    """The rounds by their names, such as ``construction of import``: the construction where the import pauses."""
    folder = tmp_path_factory.mktemp("side")
    shutil.copytree(ROOT / "dpbench/parallel", folder / "dpbench/parallel")
    with (folder / "dpbench/parallel/__init__.py").open("a") as file:
        file.write(PAUSES)
    base, case = (
        Side(folder=str(folder)),
        Case(variant="tuned[dispatch=sequence]", workload="mlp/tiny", batch=8, devices=("cpu", "cpu"), threads=1),
    )
    jobs = tuple(
        StartUpJob(
            benchmarks={f"{part} of {paused}": part for part in PARTS},
            case=case,
            sides={
                SideName.BASE: base,
                SideName.TWIN: base,
                SideName.HEAD: Side(folder=str(folder), environment={"DPBENCH_TEST_PAUSE": paused}),
            },
            cores=(max(os.sched_getaffinity(0)),),
            forks=2,
            timeout_s=60.0,
            seed=0,
        )
        for paused in (*PARTS, "broken")
    )
    end = LOCKSTEP.run(LockstepJobs(jobs=(), start_ups=jobs), 120.0).exit
    assert end.record, end.tail
    return {start_up.benchmark: start_up for start_up in LockstepRounds.model_validate_json(end.record).rounds}


@pytest.mark.parametrize("paused", PARTS)
def test_a_pause_is_in_the_time_of_its_part_of_head_alone(rounds, paused):
    for part in PARTS:
        times_s = rounds[f"{part} of {paused}"].times_s
        assert {side: len(blocks) for side, blocks in times_s.items()} == dict.fromkeys(SideName, 2)
        medians_s = {side: median(seconds for (seconds,) in blocks) for side, blocks in times_s.items()}
        assert (medians_s[SideName.HEAD] > medians_s[SideName.BASE] + PAUSE_S / 2) == (part is paused)
        assert abs(medians_s[SideName.TWIN] - medians_s[SideName.BASE]) < PAUSE_S / 2


def test_a_side_that_fails_is_named_with_its_reason(rounds):
    for part in PARTS:
        broken = rounds[f"{part} of broken"]
        assert (broken.outcome, broken.side, broken.times_s) == (Outcome.CRASHED, SideName.HEAD, {})
        assert broken.reason == "RuntimeError: not today"
