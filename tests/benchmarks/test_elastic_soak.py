"""The soak of elastic runs: its page, and two real runs of it."""

import os
import subprocess
import sys

import pytest

from benchmarks.elastic_soak import Soak, is_recovered, soak_page, soak_settings
from dpbench.results.record import Outcome
from tests.cli.conftest import ROOT
from tests.elastic.making import made_records

UNDISTURBED, ELASTIC = made_records()


def test_runs_differ_in_the_fault_alone():
    settings = [soak_settings(seed) for seed in range(20)]
    assert len({str(each.plan) for each in settings}) > 10
    assert len({each.model_copy(update={"plan": ()}) for each in settings}) == 1


def test_only_a_run_that_caught_up_has_recovered():
    assert is_recovered(ELASTIC)
    assert not is_recovered(ELASTIC.model_copy(update={"outcome": Outcome.CRASHED, "reason": "killed"}))
    stuck = [event for event in ELASTIC.events if event.at_ns < 15e9 or event.loss is not None]
    assert not is_recovered(ELASTIC.model_copy(update={"events": tuple(stuck)}))


def test_the_page_counts_and_shows_the_failures():
    wrong = ELASTIC.model_copy(update={"outcome": Outcome.WRONG_RESULT, "reason": "the loss is 2.0"})
    lines = soak_page([Soak("Kills", UNDISTURBED, [ELASTIC, ELASTIC, wrong])], "the command").splitlines()
    assert "2 of 3 runs recovered." in lines
    assert "In 2 of them loss and parameters equal the undisturbed run's to the last bit." in lines
    assert (
        "| kill@7:1 | ok | kill@7 | 12.500 | 1.000 | 0.500 | 2.500 | 4.750 | 1.500 | 2.000 | 0.250 | 2 | 1 |" in lines
    )
    assert "kill@7:1: wrong_result: `the loss is 2.0`" in lines
    assert any(line.startswith("| median | | | 12.500 |") for line in lines)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_two_runs_recover(tmp_path):
    page = tmp_path / "soak.md"
    words = ("--runs", "2", "--membership", "0", "--output", str(page))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.elastic_soak", *words],
        check=False,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=590,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 runs recovered." in page.read_text()
