"""The rate of false alarms that a gate cites: a self-test's, else that of earlier twins."""

import pytest

from dpbench.errors import GateError
from dpbench.gate.history import SelfTest, false_alarms_of_twins, measured_false_alarms, read_self_tests
from dpbench.records.row import parse_line
from tests.gate.making_history import line, times
from tests.hostile.files import self_test
from tests.records.making import ENVIRONMENT

ELSEWHERE = ENVIRONMENT.model_copy(update={"hostname": "elsewhere", "commit": "c" * 40, "dirty": True})
OTHER_CPU = ENVIRONMENT.model_copy(update={"cpu_model": "another CPU"})


def written(results, environment=ENVIRONMENT):
    content = self_test(environment=environment.model_dump())
    (results / "gate").mkdir(parents=True, exist_ok=True)
    (results / f"gate/self-test-{environment.hostname}.json").write_bytes(content)
    return parse_line(content, SelfTest)


def cited(results, *history):
    return measured_false_alarms(read_self_tests(results), *history)


def test_none_if_nothing_was_measured(tmp_path):
    assert cited(tmp_path, (), ENVIRONMENT) is None
    written(tmp_path)
    assert cited(tmp_path, (), None) is None


@pytest.mark.parametrize("environment", [ENVIRONMENT, ELSEWHERE])
def test_a_machine_of_the_same_kind_is_cited_under_any_host_name(tmp_path, environment):
    tested = written(tmp_path)
    assert tested.false_alarms.of == 6
    assert cited(tmp_path, (), environment) == tested.false_alarms


def test_the_twins_of_this_machine_are_cited_before_another_machine(tmp_path):
    written(tmp_path)
    assert cited(tmp_path, (), OTHER_CPU) is None
    lines = (line("b" * 40, "c" * 40, times("a", 1.0, 1.0, twin_alarmed=True), environment=OTHER_CPU),)
    of_twins = cited(tmp_path, lines, OTHER_CPU)
    assert (of_twins.alarms, of_twins.of) == (1, 1)
    assert cited(tmp_path, lines, ENVIRONMENT).of == 6  # the self-test comes before the twins


def test_the_machine_of_this_kind_is_cited_out_of_several(tmp_path):
    written(tmp_path, OTHER_CPU.model_copy(update={"hostname": "a"}))
    tested = written(tmp_path, ELSEWHERE.model_copy(update={"hostname": "b"}))
    assert cited(tmp_path, (), ENVIRONMENT) == tested.false_alarms


def test_a_file_that_is_no_self_test_raises_in_one_line(tmp_path):
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate/self-test-x.json").write_text("{}")
    with pytest.raises(GateError, match=r"self-test-x\.json: is no self-test's result: ") as caught:
        cited(tmp_path, (), ENVIRONMENT)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("alarms", "of", "upper"),  # the upper bound of 0 in n is 1 - 0.025 ** (1 / n)
    [(0, 10, 0.3085), (1, 20, 0.2487), (3, 3, 1.0), (0, 300, 0.01222)],
)
def test_twins_that_alarmed_are_counted_with_an_upper_bound(alarms, of, upper):
    lines = [line("a", "b", times("wide", 1, 1, twin_alarmed=number < alarms)) for number in range(of)]
    false_alarms = false_alarms_of_twins(lines, ENVIRONMENT)
    assert false_alarms is not None
    assert (false_alarms.alarms, false_alarms.of) == (alarms, of)
    assert false_alarms.upper == pytest.approx(upper, rel=5e-4)


def test_twins_of_other_machines_and_twins_that_were_not_judged_do_not_count():
    measured = line("a", "b", times("wide", 1, 1, twin_alarmed=True), times("narrow", 1, 1))
    unmeasured = line("a", "b", times("wide", 1, 1, twin_alarmed=None))
    elsewhere = line("a", "b", times("wide", 1, 1), environment=ELSEWHERE)
    false_alarms = false_alarms_of_twins([measured, unmeasured, elsewhere], ENVIRONMENT)
    assert false_alarms is not None
    assert (false_alarms.alarms, false_alarms.of) == (1, 2)
    assert false_alarms.gates == "twins, one for each benchmark, of 1 gate on this machine"
    assert false_alarms_of_twins([unmeasured, elsewhere], ENVIRONMENT) is None
