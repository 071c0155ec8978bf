"""What a self-test records, with made-up rounds."""

import fcntl
import json
import os
from math import log
from pathlib import Path

import psutil
import pytest

from dpbench.errors import GateError
from dpbench.gate import take_round
from dpbench.gate.judgement import Verdict
from dpbench.gate.self_test.inject import LOOPS
from dpbench.gate.self_test.record import Setup, record_trials
from dpbench.gate.self_test.trials import Condition
from dpbench.gate.settings import Cores, Settings
from dpbench.run.messages import LockstepJobs, LockstepRounds, SideName
from tests.fakes import ended
from tests.gate.making_rounds import benchmark, lockstep_round
from tests.results.making import ENVIRONMENT

SUITE = (benchmark("a"), benchmark("b"), benchmark("all", cores=Cores.ALL))
STEP_LOOPS = {"a": 100_000, "b": 400_000, "all": 50_000}
"""The iterations of the injected loop that take as long as a step."""
CALIBRATING = 2 + 6
"""Rounds of the calibration, rough and exact."""


@pytest.fixture(autouse=True)
def no_wait(monkeypatch):
    monkeypatch.setattr(take_round, "_CPU_SAMPLE_S", 0.001)


class Machine:
    """A launcher that answers like the lockstep child on a machine without noise.

    At each launch, `injected` gets the loops by benchmark, and `neighbours` the number of our child processes.
    """

    def __init__(self) -> None:
        self.injected: list[dict[str, int]] = []
        self.neighbours: list[int] = []

    def __call__(self, command, stdin_text, timeout_s):
        jobs = LockstepJobs.model_validate_json(stdin_text).jobs
        loops = {job.benchmark: int(job.sides[SideName.HEAD].environment.get(LOOPS, "0")) for job in jobs}
        self.injected.append(loops)
        self.neighbours.append(len(psutil.Process().children()))
        for job in jobs:
            assert (job.sides[SideName.BASE].folder, job.sides[SideName.HEAD].folder) == ("/b", "/s")
        rounds = tuple(
            lockstep_round([[1.0]], [[1.0]], [[1 + count / STEP_LOOPS[name]]]).model_copy(update={"benchmark": name})
            for name, count in loops.items()
        )
        return ended(0, LockstepRounds(rounds=rounds, environment=ENVIRONMENT).model_dump_json().encode())


def setup(machine):
    return Setup(Settings(benchmarks=SUITE), ("cpu",), Path("/b"), Path("/s"), machine, 60.0)


def recorded(path, rounds, gates, machine=None):
    machine, reported = machine or Machine(), []
    return record_trials(setup(machine), path, rounds, gates, reported.append), machine, reported


def of(trials, condition, is_round):
    return [each for each in trials if each.condition is condition and (each.gate is None) is is_round]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new/trials.jsonl"


def test_conditions_alternate_in_rounds_and_in_gates(path):
    trials, _, _ = recorded(path, 2, 1)
    rounds = [(trial.condition, trial.number) for trial in trials if trial.gate is None]
    assert rounds == [(condition, number) for number in range(2) for condition in Condition]
    gates = [(trial.condition, trial.number) for trial in trials if trial.gate is not None]
    assert gates == [(condition, 0) for condition in Condition]


@pytest.mark.parametrize(("rounds", "gates"), [(6, 2), (2, 6), (5, 3), (0, 2), (3, 0), (1, 1)])
def test_gates_are_spread_among_the_rounds(path, rounds, gates):
    """With more rounds than gates, the gates so far are within two of their proportion."""
    trials, _, _ = recorded(path, rounds, gates)
    kinds = [trial.gate is None for trial in trials if trial.condition is Condition.EQUAL]
    assert (kinds.count(True), kinds.count(False)) == (rounds, gates)
    for count in range(1, len(kinds) + 1) if rounds >= gates else ():
        so_far = kinds[:count]
        assert abs(so_far.count(False) - so_far.count(True) * gates / rounds) < 2


def test_progress_is_reported(path):
    _, _, reported = recorded(path, 2, 1)
    assert reported[0] == "calibrating the injected slowdown, round 1 of 2"
    assert reported[CALIBRATING] == "0 of 15 done; round 1, equal"
    assert reported[-1] == "14 of 15 done; gate 1, 10 % slower"


def test_a_round_is_slower_by_the_share_of_its_condition_in_every_benchmark_of_one_core(path):
    trials, machine, _ = recorded(path, 1, 0)
    for condition in Condition:
        (trial,) = of(trials, condition, True)
        assert {name: ratio.contrast for name, ratio in trial.rounds.items()} == {
            each.name: pytest.approx(log(1 + condition.slowdown), abs=1e-4)
            for each in SUITE
            if not condition.slowdown or each.cores is Cores.ONE
        }
    assert machine.injected[0] == {"a": 20_000, "b": 20_000}  # calibrating
    tenth = {"a": 10_000, "b": 40_000}
    assert machine.injected[2:CALIBRATING] == [tenth] * 6
    assert machine.injected[-1] == tenth


def test_a_gate_is_slower_in_one_benchmark_after_the_other_but_not_on_all_cores(path):
    trials, _, _ = recorded(path, 0, 3)
    for condition in (Condition.SLOWER_5, Condition.SLOWER_10):
        gates = of(trials, condition, False)
        assert [trial.planted_in for trial in gates] == ["a", "b", "a"]
        assert {trial.verdict for trial in gates} == {Verdict.SLOWER}
        for trial in gates:
            assert [each.benchmark for each in trial.gate if each.verdict is Verdict.SLOWER] == [trial.planted_in]
    for condition in (Condition.EQUAL, Condition.LOADED):
        assert {(trial.planted_in, trial.verdict) for trial in of(trials, condition, False)} == {(None, Verdict.PASS)}


def test_the_loaded_condition_runs_one_more_process_and_ends_it(path):
    before = len(psutil.Process().children())
    _, machine, _ = recorded(path, 1, 0)
    calibrating = [before] * CALIBRATING
    assert machine.neighbours == [*calibrating, before, before + 1, *[before] * 3]
    assert len(psutil.Process().children()) == before


def test_a_self_test_that_is_started_again_records_only_missing_trials(path):
    first, _, _ = recorded(path, 2, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])  # killed while it wrote
    again, machine, reported = recorded(path, 2, 1)
    assert path.read_bytes().startswith(whole[: whole[:-1].rindex(b"\n") + 1])
    assert [(trial.condition, trial.number, trial.gate is None) for trial in again] == [
        (trial.condition, trial.number, trial.gate is None) for trial in first
    ]
    assert reported[CALIBRATING:] == ["0 of 1 done; gate 1, 10 % slower"]
    more, _, reported = recorded(path, 3, 1)
    assert len(more) == len(Condition) * (3 + 1)
    assert reported[CALIBRATING] == "0 of 5 done; round 3, equal"
    done, machine, reported = recorded(path, 3, 1)
    assert (done, machine.injected, reported) == (more, [], [])  # nothing is calibrated


def test_a_failed_round_ends_the_self_test_and_recorded_trials_stay(path):
    class Failing(Machine):
        def __call__(self, *words):
            return super().__call__(*words) if len(self.injected) < CALIBRATING + 2 else ended(1, tail=b"no more\n")

    with pytest.raises(GateError, match="no more"):
        recorded(path, 2, 0, Failing())
    assert len(path.read_text().splitlines()) == 2
    assert {json.loads(line)["schema"] for line in path.read_text().splitlines()} == {1}


def test_a_file_that_cannot_be_written_raises(tmp_path):
    (tmp_path / "new").touch()
    with pytest.raises(GateError, match="cannot be"):
        recorded(tmp_path / "new/trials.jsonl", 1, 0)


def test_a_file_that_another_process_writes_raises(path):
    recorded(path, 1, 0)
    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(GateError, match="another process is writing it"):
        recorded(path, 2, 0)
    os.close(fd)
