"""Files of trials from another machine of the same name, or of other benchmarks."""

import socket
from pathlib import Path

import pytest

from dpbench.errors import GateError
from dpbench.gate.false_alarms import trials_path
from dpbench.gate.prepare import GateRequest
from dpbench.gate.self_test import run_self_test
from dpbench.gate.self_test.run_self_test import _check_of_these_benchmarks, _check_of_this_machine
from dpbench.gate.self_test.trials import Condition, read_trials
from dpbench.gate.settings import Settings
from dpbench.gate.take_round import SuiteRound
from tests.gate.making_rounds import benchmark

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "results/gate"
RECORDED = read_trials(FOLDER / "self-test-vm.jsonl")
HERE = RECORDED[0].environment


@pytest.mark.parametrize("condition", [each for each in Condition if each is not Condition.SLOWER_2])
def test_the_committed_trials_have_60_rounds_and_10_gates_of_each_condition(condition):
    is_round = [trial.gate is None for trial in RECORDED if trial.condition is condition]
    assert is_round.count(True) >= 60
    assert is_round.count(False) >= 10


def test_the_committed_trials_are_of_one_machine():
    _check_of_this_machine(RECORDED, HERE, Path("self-test-vm.jsonl"))


def test_trials_of_another_machine_raise_even_if_none_is_missing():
    other = HERE.model_copy(update={"cores": 64})
    with pytest.raises(GateError, match=r"self-test-vm\.jsonl: .* another machine of this name .*; allowed: "):
        _check_of_this_machine(RECORDED, other, Path("self-test-vm.jsonl"))
    mixed = (*RECORDED, RECORDED[0].model_copy(update={"environment": other}))
    with pytest.raises(GateError, match=r"cores 64, here 2"):
        _check_of_this_machine(mixed, HERE, Path("self-test-vm.jsonl"))


def test_trials_of_other_benchmarks_raise_with_their_names():
    recorded = tuple(benchmark(name) for name in sorted({name for trial in RECORDED for name in trial.rounds}))
    _check_of_these_benchmarks(RECORDED, Settings(benchmarks=recorded), Path("x"))
    _check_of_these_benchmarks((), Settings(), Path("x"))
    for others in ((*recorded, benchmark("wide")), recorded[1:]):
        with pytest.raises(
            GateError, match=r"x: has trials of all_cores, inference, launch_bound, .*; allowed: those of"
        ):
            _check_of_these_benchmarks(RECORDED, Settings(benchmarks=others), Path("x"))


def test_another_commit_is_the_same_machine():
    other = HERE.model_copy(update={"commit": "f" * 40, "dirty": True})
    _check_of_this_machine((*RECORDED, RECORDED[0].model_copy(update={"environment": other})), HERE, Path("x"))


def test_a_complete_file_of_another_machine_raises_before_anything_is_recorded(tmp_path, monkeypatch):
    """The self-test runs as usual, with a made-up machine and made-up rounds."""
    path = trials_path(tmp_path / "results", socket.gethostname())
    path.parent.mkdir(parents=True)
    recorded = (FOLDER / "self-test-vm.jsonl").read_bytes()
    path.write_bytes(recorded)
    of_these = tuple(benchmark(name) for name in sorted({name for trial in RECORDED for name in trial.rounds}))
    other = HERE.model_copy(update={"cpu_model": "another"})
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(run_self_test, "timed_settings", lambda *_: (("cpu",), Settings(benchmarks=of_these)))
    monkeypatch.setattr(run_self_test, "take_round", lambda *_: SuiteRound({}, other))
    with pytest.raises(GateError, match="another machine of this name"):
        run_self_test.run_self_test(GateRequest("HEAD", results=tmp_path / "results"), 60, 10, progress=lambda _: None)
    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes() == recorded
