"""Reading files of trials."""

import pytest
from pydantic import ValidationError

from dpbench.errors import GateError
from dpbench.gate.self_test.trials import SCHEMA, Condition, SelfTestTrial, read_trials
from tests.gate.making_trials import gate_trial, round_trial

TRIALS = (round_trial(0, a=0.1), gate_trial(1, Condition.SLOWER_5, "slower", "a", "a"))


def line(trial):
    return trial.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n"


def test_written_trials_are_read(tmp_path):
    path = tmp_path / "t.jsonl"
    assert read_trials(path) == ()
    path.write_bytes(b"".join(map(line, TRIALS)))
    assert read_trials(path) == TRIALS
    assert f'"schema":{SCHEMA}' in path.read_text()


def test_a_torn_end_is_dropped(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(line(TRIALS[0]) + line(TRIALS[1])[:-1])
    assert read_trials(path) == TRIALS[:1]


@pytest.mark.parametrize("bad", [b"{}\n", b"not json\n", line(TRIALS[0]).replace(b'"schema":1', b'"schema":2')])
def test_a_bad_line_raises_with_its_number(tmp_path, bad):
    path = tmp_path / "t.jsonl"
    path.write_bytes(line(TRIALS[0]) + bad + line(TRIALS[1]))
    with pytest.raises(GateError, match=r"t\.jsonl: line 2 is no trial of a self-test: "):
        read_trials(path)


def test_a_file_that_cannot_be_read_raises(tmp_path):
    with pytest.raises(GateError, match=r"cannot be read: Is a directory"):
        read_trials(tmp_path)


@pytest.mark.parametrize("fields", [{"number": -1}, {"duration_s": 0.0}, {"duration_s": float("inf")}, {"x": 1}])
def test_impossible_values_are_refused(fields):
    with pytest.raises(ValidationError, match=next(iter(fields))):
        SelfTestTrial.model_validate({**TRIALS[0].model_dump(), **fields})


def test_conditions_say_how_much_slower_head_is():
    assert [condition.slowdown for condition in Condition] == [0.0, 0.0, 0.02, 0.05, 0.1]
