"""The judgement as JUnit XML."""

import re
from xml.etree import ElementTree as ET

import pytest

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.json_form import EXIT_CODES
from dpbench.report.gate.junit import gate_junit
from dpbench.report.gate.wording import one_line, reliability
from tests.report.gate.making_gate import ACCEPTED, COUNTS, EVERY, HOSTILE, LANES, STEP, counter, drift, judged, time

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


def suite(found: Judgement) -> ET.Element:
    return ET.fromstring(gate_junit(found).encode()).find("testsuite")


def cases(found: Judgement) -> dict[str, ET.Element]:
    return {case.get("name"): case for case in suite(found).iter("testcase")}


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
    found = [outcome(case) for case in only.iter("testcase")]
    counts = [only.get("tests"), only.get("failures"), only.get("errors"), only.get("skipped")]
    assert counts == [str(len(found)), *(str(found.count(tag)) for tag in ("failure", "error", "skipped"))]
    assert only.get("time") == "272.400000"
    names = [case.get("name") for case in only.iter("testcase")]
    assert all(names)
    keys = [(case.get("classname"), case.get("name")) for case in only.iter("testcase")]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", EVERY)
def test_one_case_has_the_verdict(name: str) -> None:
    severity = {"passed": 0, "failure": 1, "skipped": 2, "error": 3}
    found = {severity[outcome(case)] for case in cases(EVERY[name]).values()}
    assert EXIT_CODES[EVERY[name].verdict] in found
    if EVERY[name].verdict is Verdict.PASS:
        assert found == {0}


@pytest.mark.parametrize("name", EVERY)
def test_the_output_has_the_reliability_lines(name: str) -> None:
    text = suite(EVERY[name]).find("system-out").text
    assert all(line in text for line in reliability(EVERY[name]))


def test_slower_fails() -> None:
    found = cases(EVERY["slower"])
    assert {name: outcome(case) for name, case in found.items()} == {
        COUNTS: "failure",
        LANES: "failure",
        STEP: "passed",
        "drifting": "failure",
    }
    assert [found[name].get("classname") for name in (COUNTS, LANES, "drifting")] == [
        "dpbench.gate.tier0",
        "dpbench.gate.tier1",
        "dpbench.gate.tier2",
    ]
    assert found[COUNTS].find("failure").text.splitlines()[1:] == [
        "forward operators: 2,000 -> 2,001 (worse)",
        "new kernels: - -> 7 (differs)",
        "copies sim:0->sim:1: 5 -> 4 (better)",
    ]
    assert (
        found[LANES]
        .find("failure")
        .get("message")
        .startswith("step time slower: why slower; +5.2 %, head / base 1.052 [")
    )
    assert found[LANES].get("time") == "0.010520"
    assert found[COUNTS].get("time") is None


def test_pass_passes_and_tiers_without_a_finding_are_cases() -> None:
    assert {name: outcome(case) for name, case in cases(EVERY["pass"]).items()} == {
        STEP: "passed",
        "all counters": "passed",
        "all histories": "passed",
    }
    assert list(cases(judged(tiers=(1,), counted_cases=420, times=(time(),)))) == [STEP]
    assert "all counters" not in cases(judged(times=(time(),))), "nothing was counted"


def test_undecided_is_skipped_with_its_reason() -> None:
    case = cases(EVERY["undecided"])[STEP]
    assert outcome(case) == "skipped"
    assert case.find("skipped").get("message").startswith("step time undecided: why undecided; +1.0 %")


def test_a_verdict_that_no_benchmark_has_is_a_case_of_its_own() -> None:
    for verdict, tag in {"broken": "error", "undecided": "skipped", "slower": "failure", "pass": "passed"}.items():
        found = cases(judged(verdict, tiers=(1,)))
        assert {name: outcome(case) for name, case in found.items()} == {"gate": tag}
    assert outcome(cases(judged("slower", times=(time(),)))["gate"]) == "failure", "the whole does not pass"
    part = judged("undecided", counted_cases=1, uncounted_cases=1, tiers=(0,))
    assert list(cases(part)) == ["counters, 1 of 2 cases counted", "gate"]
    assert list(cases(judged("broken", counted_cases=5, tiers=(0, 2)))) == ["gate"], (
        "no tier passes if the gate is broken"
    )
    assert cases(EVERY["broken"])["gate"].find("error").get("message") == "gate: for a reason of broken"


def test_an_accepted_regression_passes_with_its_reason() -> None:
    found = cases(EVERY["accepted"])
    assert {outcome(case) for case in found.values()} == {"passed"}
    for name in (COUNTS, LANES, "drifting"):
        assert "accepted until 2027-01-31 (counts * at v2): pays for B7" in found[name].find("system-out").text


def test_drifts_of_one_benchmark_are_one_case_the_latest_first() -> None:
    first, last = drift(since="2026-01-01"), drift(before_s=0.023, after_s=0.03, since="2026-02-02")
    (case,) = cases(judged("slower", tiers=(2,), drifts=(first, last))).values()
    assert [line.split()[0] for line in case.find("failure").text.splitlines()] == ["23.0", "20.0"]
    assert case.get("time") == "0.030000"
    assert outcome(cases(judged(drifts=(first,)))["drifting"]) == "passed", "a drift passes if the whole passes"
    both = (drift(accepted=ACCEPTED), first)
    assert outcome(cases(judged("slower", drifts=both))["drifting"]) == "failure"


def test_counters_that_are_not_worse_do_not_fail() -> None:
    changes = (counter(2, 1, is_worse=False), counter(1, 2, is_worse=None, counter="differs"))
    assert outcome(cases(judged(counters=changes))[COUNTS]) == "passed"


def test_quoted_text_is_text() -> None:
    written = gate_junit(EVERY["evil"])
    assert not re.search(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", written), "XML 1.0, 2.2"
    assert one_line(HOSTILE) in cases(EVERY["evil"])
    properties = {each.get("name"): each.get("value") for each in suite(EVERY["evil"]).iter("property")}
    assert properties["base"] == f"0123456789 ({one_line(HOSTILE)}) {one_line(HOSTILE)}"
