"""Expectations: read as written, compared both ways."""

import json

import pytest

from dpbench.cases.case import Case
from dpbench.errors import WrongInputError
from dpbench.records.count_record import CountRecord, Counts, Phase, PhaseCounts
from dpbench.records.expected import check_counts, differences, update_counts
from dpbench.records.record import Outcome
from tests.records.making import ENVIRONMENT


def record(workload="mlp/tiny", operators=3, torch="2.13.0+cpu"):
    environment = ENVIRONMENT.model_copy(update={"torch": torch})
    case = Case(variant="naive", workload=workload, batch=8, devices=("cpu", "cpu"), threads=1)
    counts = Counts(phases={Phase.FORWARD: PhaseCounts(operators=operators, flops=7)})
    return CountRecord(case=case, outcome=Outcome.OK, counts=counts, environment=environment)


def failed():
    return CountRecord(case=record("mlp/small").case, outcome=Outcome.CRASHED, reason="killed by SIGSEGV")


def test_what_was_recorded_is_as_expected_whatever_the_order_and_the_build(tmp_path):
    path = update_counts(tmp_path / "new", [record(), record("convnet/tiny")])
    assert path.name == "torch-2.13.0-py3.11.json"
    assert check_counts(tmp_path / "new", [record("convnet/tiny", torch="2.13.0+cu130"), record()]) == []


def test_a_file_has_one_counter_a_line_in_order(tmp_path):
    text = update_counts(tmp_path, [record(), record("convnet/tiny")]).read_text()
    lines = [line.strip().rstrip(",") for line in text.splitlines()]
    assert lines.count('"forward.operators": 3') == 2
    cases = json.loads(text)["cases"]
    assert list(cases) == sorted(cases)
    assert all(list(counters) == sorted(counters) for counters in cases.values())
    assert text.endswith("}\n")


def test_a_changed_counter_is_told_old_and_new(tmp_path):
    update_counts(tmp_path, [record()])
    (line,) = check_counts(tmp_path, [record(operators=4)])
    assert line == f"{record().case.id}: forward.operators: 3 -> 4"


def test_missing_and_surplus_entries_are_told_both_ways():
    one, both = {"a": {"x": 1}}, {"a": {"x": 1, "y": 2}, "b": {"z": 3}}
    assert differences(one, both) == ["a: y: 2, not expected", "b: counted, not expected"]
    assert differences(both, one) == ["a: y: 2 expected, not counted", "b: expected, not counted"]


def test_a_case_that_failed_is_told_and_never_recorded(tmp_path):
    update_counts(tmp_path, [record()])
    *changes, last = check_counts(tmp_path, [record(operators=4), failed()])
    assert last == f"{failed().case.id}: crashed: killed by SIGSEGV"
    assert len(changes) == 1
    with pytest.raises(WrongInputError, match="cannot be recorded: crashed: killed by SIGSEGV"):
        update_counts(tmp_path, [record(), failed()])
    with pytest.raises(WrongInputError, match="nothing could be counted: crashed"):
        check_counts(tmp_path, [failed()])


def test_without_a_file_for_this_torch_and_python_those_that_are_there_are_named(tmp_path):
    update_counts(tmp_path, [record(torch="2.12.1")])
    with pytest.raises(
        WrongInputError, match=r"torch-2\.13\.0-py3\.11\.json .*there: torch-2\.12\.1-py3\.11\.json; .*--update"
    ):
        check_counts(tmp_path, [record()])


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WrongInputError, match="cannot be written"):
        update_counts(tmp_path / "file", [record()])
