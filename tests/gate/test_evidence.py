"""Which self-test a gate may cite."""

import pytest

from dpbench.errors import GateError
from dpbench.gate.evidence import measured_false_alarms, self_test_path, trials_path, write_self_test
from dpbench.gate.self_test.result import result_of
from dpbench.gate.settings import Settings
from tests.gate.making_history import line, times
from tests.gate.making_rounds import benchmark
from tests.gate.making_trials import recorded
from tests.results.making import ENVIRONMENT

ELSEWHERE = ENVIRONMENT.model_copy(update={"hostname": "elsewhere", "commit": "c" * 40, "dirty": True})
OTHER_CPU = ENVIRONMENT.model_copy(update={"cpu_model": "another CPU"})


def written(results, environment=ENVIRONMENT):
    settings = Settings(benchmarks=(benchmark("a"), benchmark("b")))
    found = result_of(recorded(5, environment), settings, 60.0, gates=4)
    (results / "gate").mkdir(parents=True, exist_ok=True)
    write_self_test(self_test_path(results, environment), found)
    return found


def test_where_nothing_was_measured_nothing_is_cited(tmp_path):
    assert measured_false_alarms(tmp_path, (), ENVIRONMENT) is None
    written(tmp_path)
    assert measured_false_alarms(tmp_path, (), None) is None


@pytest.mark.parametrize("environment", [ENVIRONMENT, ELSEWHERE])
def test_a_machine_of_the_same_kind_may_be_cited_whatever_it_is_called(tmp_path, environment):
    found = written(tmp_path)
    assert found.false_alarms.of == 4
    assert measured_false_alarms(tmp_path, (), environment) == found.false_alarms


def test_another_machine_is_not_cited_but_the_twins_of_this_one(tmp_path):
    written(tmp_path)
    assert measured_false_alarms(tmp_path, (), OTHER_CPU) is None
    lines = (line("b" * 40, "c" * 40, times("a", 1.0, 1.0, twin_alarmed=True), environment=OTHER_CPU),)
    cited = measured_false_alarms(tmp_path, lines, OTHER_CPU)
    assert (cited.alarms, cited.of) == (1, 1)
    assert measured_false_alarms(tmp_path, lines, ENVIRONMENT).of == 4  # the self-test's, before any twins


def test_of_several_machines_that_of_this_kind_is_cited(tmp_path):
    written(tmp_path, OTHER_CPU.model_copy(update={"hostname": "a"}))
    found = written(tmp_path, ELSEWHERE.model_copy(update={"hostname": "b"}))
    assert measured_false_alarms(tmp_path, (), ENVIRONMENT) == found.false_alarms


def test_a_file_that_is_no_self_test_is_told_on_one_line(tmp_path):
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate/self-test-x.json").write_text("{}")
    with pytest.raises(GateError, match=r"self-test-x\.json: is no self-test's result: ") as caught:
        measured_false_alarms(tmp_path, (), ENVIRONMENT)
    assert "\n" not in str(caught.value)


def test_the_trials_are_no_result(tmp_path):
    assert trials_path(tmp_path, "here").name == "self-test-here.jsonl"
    assert self_test_path(tmp_path, ENVIRONMENT).name == "self-test-here.json"


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    found = written(tmp_path)
    with pytest.raises(GateError, match="cannot be written"):
        write_self_test(tmp_path / "none/self-test.json", found)
