"""A self-test's file may come from another machine of the same name."""

import socket
from pathlib import Path

import pytest

from dpbench.errors import GateError
from dpbench.gate.evidence import trials_path
from dpbench.gate.prepare import Asked
from dpbench.gate.self_test import examine
from dpbench.gate.self_test.examine import _check_of_these_benchmarks, _check_of_this_machine
from dpbench.gate.self_test.trials import Condition, read_trials
from dpbench.gate.settings import Settings
from dpbench.gate.take_round import Taken
from tests.gate.making_rounds import benchmark

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "results/gate"
RECORDED = read_trials(FOLDER / "self-test-vm.jsonl")
HERE = RECORDED[0].environment


@pytest.mark.parametrize("condition", Condition)
def test_what_is_committed_has_60_rounds_and_10_gates_of_each_condition(condition):
    of_it = [trial.gate is None for trial in RECORDED if trial.condition is condition]
    assert of_it.count(True) >= 60
    assert of_it.count(False) >= 10


def test_what_is_committed_is_of_one_machine():
    _check_of_this_machine(RECORDED, HERE, Path("self-test-vm.jsonl"))


def test_trials_of_another_machine_are_refused_also_where_none_lack():
    other = HERE.model_copy(update={"cores": 64})
    with pytest.raises(GateError, match=r"self-test-vm\.jsonl: .* another machine of this name .*; allowed: "):
        _check_of_this_machine(RECORDED, other, Path("self-test-vm.jsonl"))
    mixed = (*RECORDED, RECORDED[0].model_copy(update={"environment": other}))
    with pytest.raises(GateError, match=r"cores 64, here 2"):
        _check_of_this_machine(mixed, HERE, Path("self-test-vm.jsonl"))


def test_trials_of_other_benchmarks_are_refused_with_their_names():
    _check_of_these_benchmarks(RECORDED, Settings(), Path("x"))
    _check_of_these_benchmarks((), Settings(), Path("x"))
    one_more = [*Settings().benchmarks, benchmark("wide")]
    for others in (one_more, Settings().benchmarks[1:]):
        with pytest.raises(
            GateError, match=r"x: has trials of all_cores, inference, launch_bound, .*; allowed: those of"
        ):
            _check_of_these_benchmarks(RECORDED, Settings(benchmarks=others), Path("x"))


def test_another_commit_is_no_other_machine():
    other = HERE.model_copy(update={"commit": "f" * 40, "dirty": True})
    _check_of_this_machine((*RECORDED, RECORDED[0].model_copy(update={"environment": other})), HERE, Path("x"))


def test_a_whole_file_of_another_machine_is_noticed_before_anything_is_recorded(tmp_path, monkeypatch):
    """All that a self-test does, but for the machine that is asked and the rounds that are taken."""
    path = trials_path(tmp_path / "results", socket.gethostname())
    path.parent.mkdir(parents=True)
    recorded = (FOLDER / "self-test-vm.jsonl").read_bytes()
    path.write_bytes(recorded)
    other = HERE.model_copy(update={"cpu_model": "another"})
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(examine, "to_be_timed", lambda *_: (("cpu",), Settings()))
    monkeypatch.setattr(examine, "take_round", lambda *_: Taken({}, other))
    with pytest.raises(GateError, match="another machine of this name"):
        examine.examine(Asked("HEAD", results=tmp_path / "results"), 60, 10, progress=lambda _: None)
    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes() == recorded
