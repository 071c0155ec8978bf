"""A self-test's file may come from another machine of the same name."""

from pathlib import Path

import pytest

from dpbench.gate.errors import GateError
from dpbench.gate.examine import _check_of_one_machine
from dpbench.gate.trial import Condition, read_trials

RECORDED = read_trials(Path(__file__).parents[2] / "results/gate/self-test-vm.jsonl")


@pytest.mark.parametrize("condition", Condition)
def test_what_is_committed_has_60_rounds_and_10_gates_of_each_condition(condition):
    of_it = [trial.gate is None for trial in RECORDED if trial.condition is condition]
    assert of_it.count(True) >= 60
    assert of_it.count(False) >= 10


def test_what_is_committed_is_of_one_machine():
    _check_of_one_machine(RECORDED, Path("self-test-vm.jsonl"))


def test_trials_of_two_machines_are_refused():
    other = RECORDED[0].environment.model_copy(update={"cores": 64})
    mixed = (*RECORDED, RECORDED[0].model_copy(update={"environment": other}))
    with pytest.raises(GateError, match=r"self-test-vm\.jsonl: holds trials of 2 machines; allowed: one"):
        _check_of_one_machine(mixed, Path("self-test-vm.jsonl"))


def test_another_commit_is_no_other_machine():
    other = RECORDED[0].environment.model_copy(update={"commit": "f" * 40, "dirty": True})
    _check_of_one_machine((*RECORDED, RECORDED[0].model_copy(update={"environment": other})), Path("x"))
