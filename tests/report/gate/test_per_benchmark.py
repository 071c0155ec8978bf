"""The forms with one finding for each benchmark: annotations, parsed as GitHub's runner does, and JUnit XML."""

import re
from xml.etree import ElementTree as ET

import pytest

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.forms import EXIT_CODES
from dpbench.report.gate.per_benchmark import annotations, gate_junit
from dpbench.report.gate.verdict_tables import one_line
from tests.report.gate.making_gate import (
    COUNTS,
    EVERY,
    EVIL,
    HOSTILE,
    counter,
    judged,
    time,
)


def unescaped(text: str, tokens: str) -> str:
    for token in tokens:
        text = text.replace(f"%{ord(token):02X}", token)
    return text


def read(line: str) -> tuple[str, dict[str, str], str]:
    """Return command, properties and message.

    Source: actions/runner, src/Runner.Common/ActionCommand.cs, TryParseV2.
    """
    line = line.lstrip()
    assert line.startswith("::")
    end = line.index("::", 2)
    command, _, given = line[2:end].partition(" ")
    pairs = [pair.split("=", 1) for pair in given.strip().split(",") if pair]
    return command, {key: unescaped(value, "\r\n:,%") for key, value in pairs}, unescaped(line[end + 2 :], "\r\n%")


def parsed(name: str) -> list[tuple[str, dict[str, str], str]]:
    return [read(line) for line in annotations(EVERY[name]).splitlines()]


def test_quoted_text_is_unescaped_to_itself_on_one_line_and_is_no_command() -> None:
    lines = annotations(EVIL).splitlines()
    assert len(lines) == 5
    commands = [read(line) for line in lines]
    assert all(set(properties) == {"title"} for _, properties, _ in commands)
    assert commands[0][2].splitlines()[0] == f"Slower: {one_line(HOSTILE)}"
    assert commands[2][1]["title"] == f"step time slower: {one_line(HOSTILE)}"
    assert commands[2][2].startswith(f"{one_line(HOSTILE)}: +1.0 %")
    assert commands[2][2].endswith(f"24 rounds; {one_line(HOSTILE)}")


@pytest.mark.parametrize("text", ["100%25,a=b:c%0A", "%3A,file=x", "a,b::c", "\r\n::warning::x"])
def test_text_that_looks_escaped_stays_as_it_is(text: str) -> None:
    written = annotations(judged("slower", why=text, times=(time(text, "slower", why=text),)))
    whole, one = (read(line) for line in written.splitlines())
    assert whole[2].splitlines()[0] == f"Slower: {one_line(text)}"
    assert one[1] == {"title": f"step time slower: {one_line(text)}"}
    assert one[2].endswith(f"; {one_line(text)}")


SHAPE = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname"},
        {"properties", "testcase", "system-out"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "testcase": ({"name", "time", "classname"}, {"skipped", "error", "failure", "system-out"}),
    **dict.fromkeys(("skipped", "error", "failure"), ({"type", "message"}, set())),
    "system-out": (set(), set()),
}
"""The attributes and children that we use, from jenkinsci/xunit-plugin's junit-10.xsd."""
TIME = r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?"


def suite(judgement: Judgement) -> ET.Element:
    return ET.fromstring(gate_junit(judgement).encode()).find("testsuite")


def cases(judgement: Judgement) -> dict[str, ET.Element]:
    return {case.get("name"): case for case in suite(judgement).iter("testcase")}


def outcome(case: ET.Element) -> str:
    return next((child.tag for child in case if child.tag != "system-out"), "passed")


@pytest.mark.parametrize("name", EVERY)
def test_the_xml_follows_the_schema(name: str) -> None:
    root = ET.fromstring(gate_junit(EVERY[name]).encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        attributes, children = SHAPE[element.tag]
        assert set(element.keys()) <= attributes
        assert {child.tag for child in element} <= children
        assert re.fullmatch(TIME, element.get("time", "0"))
    (only,) = root
    for attribute in ("tests", "failures", "errors", "time"):
        assert root.get(attribute) == only.get(attribute)
    outcomes = [outcome(case) for case in only.iter("testcase")]
    counts = [only.get("tests"), only.get("failures"), only.get("errors"), only.get("skipped")]
    assert counts == [str(len(outcomes)), *(str(outcomes.count(tag)) for tag in ("failure", "error", "skipped"))]
    assert only.get("time") == "272.400000"
    names = [case.get("name") for case in only.iter("testcase")]
    assert all(names)
    keys = [(case.get("classname"), case.get("name")) for case in only.iter("testcase")]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", EVERY)
def test_one_case_has_the_verdict(name: str) -> None:
    severity = {"passed": 0, "failure": 1, "skipped": 4, "error": 3}
    severities = {severity[outcome(case)] for case in cases(EVERY[name]).values()}
    assert EXIT_CODES[EVERY[name].verdict] in severities
    if EVERY[name].verdict is Verdict.PASS:
        assert severities == {0}


def test_a_counter_that_is_tolerated_or_noted_fails_no_case() -> None:
    passing = (counter(tolerated=True), counter(benchmark="x", traded_for="step"))
    judgement = judged(counters=passing, counted_cases=2)
    assert [outcome(case) for case in cases(judgement).values()] == ["passed"] * 3
    assert outcome(cases(judged("slower", counters=(*passing, counter()), counted_cases=2))[COUNTS]) == "failure"


def test_quoted_text_is_text() -> None:
    written = gate_junit(EVERY["evil"])
    assert not re.search(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", written), "XML 1.0, 2.2"
    assert one_line(HOSTILE) in cases(EVERY["evil"])
    properties = {element.get("name"): element.get("value") for element in suite(EVERY["evil"]).iter("property")}
    assert properties["base"] == f"0123456789 ({one_line(HOSTILE)}) {one_line(HOSTILE)}"
