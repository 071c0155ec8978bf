"""The result of a self-test as tables and as JSON."""

import json

from rich.console import Console

from dpbench.gate.self_test.result import ConditionResult, SelfTest, Spread, Verdicts
from dpbench.gate.self_test.trials import Condition
from dpbench.report.gate.self_test_tables import alarms_as_designed, self_test_json, self_test_text
from tests.report.gate.making_gate import ENVIRONMENT


def examined(condition: Condition, slower: int, found: int = 0) -> ConditionResult:
    return ConditionResult(
        condition=condition,
        spreads=(Spread(benchmark="launch_bound", rounds=60, ratio=1.049, spread=0.011, twin_spread=0.013),),
        drawn=Verdicts(slower=slower, undecided=3, passed=1997 - slower),
        whole=Verdicts(slower=found, undecided=0, passed=10 - found),
        found=found,
        median_s=61.0,
        longest_s=118.4,
    )


def of(equal: int = 0, loaded: int = 0) -> SelfTest:
    return SelfTest(
        tested=(
            examined(Condition.EQUAL, equal),
            examined(Condition.LOADED, loaded),
            examined(Condition.SLOWER_5, 1988, 9),
            examined(Condition.SLOWER_10, 1997, 10),
        ),
        alarm_rate=0.005,
        budget_s=300.0,
        began="2026-11-21T19:00:00+00:00",
        ended="2026-11-21T20:00:00+00:00",
        environment=ENVIRONMENT,
    )


def text_of(found: SelfTest, width: int = 160) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(self_test_text(found))
    return console.export_text()


def test_every_condition_has_its_verdicts_with_an_interval():
    text = text_of(of())
    drawn, whole = [line for line in text.splitlines() if line.strip().startswith("5 % slower")][:2]
    assert "1988 = 99.4 % [" in drawn
    assert "9 = 90 % [55.5 %" in whole
    assert "118 s" in whole


def test_rounds_are_printed_with_their_spread():
    line = next(line for line in text_of(of()).splitlines() if "launch_bound" in line)
    assert "+4.9 %" in line
    assert "1.1 %" in line
    assert "1.3 %" in line


def test_the_machine_and_the_date_are_beside_the_figures():
    text = text_of(of())
    assert "2026-11-21" in text
    assert ENVIRONMENT.cpu_model in text


def test_json_has_the_fields_and_the_intervals():
    found = json.loads(json.dumps(self_test_json(of(equal=4)), allow_nan=False))
    low, high = found["tested"][0]["drawn"]["slower_interval"]
    assert low < 4 / 2000 < high < 0.01
    assert found["environment"]["cpu_model"] == ENVIRONMENT.cpu_model


def test_alarms_are_as_designed_unless_the_lower_bound_is_above_the_alarm_rate():
    assert alarms_as_designed(of(equal=10, loaded=10))
    assert not alarms_as_designed(of(equal=40))
    assert not alarms_as_designed(of(loaded=40))


def test_gates_cite_equal_code_while_nothing_else_runs():
    found = of(equal=2, loaded=9).false_alarms
    assert (found.alarms, found.of) == (2, 2000)
    assert 0.001 < found.upper < 0.005
    assert "60 rounds" in found.gates
