"""Tier 0 counts the trials in which the default dispatch chooses the wrong way."""

import pytest

from dpbench.gate.tier0.counters import compare_records
from dpbench.gate.tier0.gate_cases import choice_case
from dpbench.run.count_all import run_jobs
from dpbench.run.messages import CountJob
from tests.gate.planting import Edit, planted

COUNTER = "auto.slower_choices"
FASTEST = "min(least_s"
GAIN = "LEAST_GAIN = 0.05"
DEFAULT = "    dispatch: Dispatch = Dispatch.AUTO"


def counted(folder, *edits):
    return run_jobs([CountJob(case=choice_case(), choices=True)], folder=planted(folder, *edits))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return counted(tmp_path_factory.mktemp("base"))


@pytest.mark.parametrize(
    "plant",
    [
        Edit("dispatch.py", FASTEST, FASTEST.replace("min", "max")),
        Edit("dispatch.py", GAIN, GAIN.replace("0.05", "0.0")),
        Edit("policy.py", DEFAULT, DEFAULT.replace("AUTO", "SEQUENCE")),
        Edit("policy.py", DEFAULT, DEFAULT.replace("AUTO", "THREADS")),
    ],
    ids=["the slowest", "for any gain", "always in sequence", "always on threads"],
)
def test_a_wrong_choice_is_worse(base, tmp_path, plant):
    found = {change.counter: change for change in compare_records(base, counted(tmp_path / "head", plant))}
    assert (found[COUNTER].base, found[COUNTER].head, found[COUNTER].is_worse) == (0, 1, True)
