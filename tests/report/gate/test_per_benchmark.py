"""The forms with one finding for each benchmark: annotations, parsed as GitHub's runner does, and JUnit XML."""

import re
from xml.etree import ElementTree as ET

import pytest

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.forms import EXIT_CODES
from dpbench.report.gate.per_benchmark import annotations, gate_junit
from dpbench.report.gate.tables import one_line, reliability
from tests.report.gate.making_gate import (
    ACCEPTED,
    ALL_ACCEPTED,
    BROKEN,
    COUNTS,
    EVERY,
    EVIL,
    HOSTILE,
    LANES,
    PASS,
    SLOWER,
    STEP,
    UNDECIDED,
    counter,
    drift,
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


def test_one_line_for_the_whole_and_one_for_each_regression() -> None:
    assert [(command, found["title"]) for command, found, _ in parsed("slower")] == [
        ("error", "dpbench gate: slower"),
        ("error", f"counters worse: {COUNTS}"),
        ("error", f"step time slower: {LANES}"),
        ("error", "drift: drifting"),
    ]
    messages = [message for *_, message in parsed("slower")]
    assert messages[0].splitlines()[0] == "Slower: for a reason of slower"
    assert "0 of 2,000, at most 0.15 %;" in messages[0].splitlines()[1]
    assert messages[0].splitlines()[2].startswith("smallest detectable change: ")
    assert messages[1] == (
        f"{COUNTS}: 1 worse, 0 accepted, 2 otherwise changed; forward operators: 2,000 -> 2,001 (worse)"
    )
    assert messages[2].startswith(f"{LANES}: why slower; +5.2 %, head / base 1.052 [1.041, 1.063]; tolerated 2 %")
    assert messages[3] == "drifting: 20.0 -> 23.0 ms, +15.0 % since cccccccccc of 2026-10-01, seen in 9 points"


def test_pass_has_no_annotation() -> None:
    assert annotations(PASS) == ""


def test_undecided_warns() -> None:
    assert annotations(UNDECIDED).startswith("::warning title=dpbench gate%3A undecided::Undecided: for a reason")
    assert [command for command, *_ in parsed("undecided")] == ["warning", "warning"]


def test_broken_is_an_error_even_if_nothing_was_measured() -> None:
    assert [command for command, *_ in parsed("broken")] == ["error"]
    assert "Broken: for a reason of broken\n" in parsed("broken")[0][2]
    assert annotations(BROKEN).count("\n") == 1


def test_an_accepted_regression_is_a_notice() -> None:
    assert [(command, found["title"]) for command, found, _ in parsed("accepted")] == [
        ("notice", f"counters accepted: {COUNTS}"),
        ("notice", f"step time slower, accepted: {LANES}"),
        ("notice", "drift accepted: drifting"),
    ]
    assert all(
        "accepted until 2027-01-31 (counts * at v2): pays for B7" in message for *_, message in parsed("accepted")
    )
    assert "::error" not in annotations(ALL_ACCEPTED)


def test_traded_python_calls_are_a_notice_that_names_the_time() -> None:
    traded = counter(counter="forward.python_calls", traded_for="my_step")
    (line,) = annotations(judged(counters=(traded,))).splitlines()
    assert line.startswith("::notice title=counters traded%3A")
    assert "0 worse, 0 accepted, 1 traded, 0 otherwise changed" in line
    assert line.endswith("forward.python_calls: 2,000 -> 2,001 (worse, traded); the time of my_step is not longer")


def test_notices_come_after_errors() -> None:
    mixed = (counter(benchmark="mixed"), counter(benchmark="mixed", accepted=ACCEPTED, counter="other"))
    many = judged("slower", counters=(*ALL_ACCEPTED.counters, *mixed), times=SLOWER.times)
    levels = [line.split(" ")[0] for line in annotations(many).splitlines()]
    assert levels == ["::error", "::error", "::error", "::notice"]


def test_undecided_and_accepted_is_a_notice_but_broken_and_accepted_is_an_error() -> None:
    times = (time("a", "undecided", accepted=ACCEPTED), time("b", "broken", accepted=ACCEPTED))
    assert [read(line)[0:2] for line in annotations(judged(times=times)).splitlines()] == [
        ("error", {"title": "step time broken: b"}),
        ("notice", {"title": "step time undecided, accepted: a"}),
    ]


def test_a_drift_is_a_notice_if_the_whole_passes() -> None:
    (line,) = annotations(judged(drifts=(drift(),))).splitlines()
    assert read(line)[:2] == ("notice", {"title": "drift: drifting"})


def test_quoted_text_is_unescaped_to_itself_on_one_line_and_is_no_command() -> None:
    lines = annotations(EVIL).splitlines()
    assert len(lines) == 5
    commands = [read(line) for line in lines]
    assert all(set(properties) == {"title"} for _, properties, _ in commands)
    assert commands[0][2].splitlines()[0] == f"Slower: {one_line(HOSTILE)}"
    assert commands[2][1]["title"] == f"step time slower: {one_line(HOSTILE)}"
    assert commands[2][2].startswith(f"{one_line(HOSTILE)}: {one_line(HOSTILE)}; +1.0 %")


@pytest.mark.parametrize("text", ["100%25,a=b:c%0A", "%3A,file=x", "a,b::c", "\r\n::warning::x"])
def test_text_that_looks_escaped_stays_as_it_is(text: str) -> None:
    written = annotations(judged("slower", why=text, times=(time(text, "slower", why=text),)))
    whole, one = (read(line) for line in written.splitlines())
    assert whole[2].splitlines()[0] == f"Slower: {one_line(text)}"
    assert one[1] == {"title": f"step time slower: {one_line(text)}"}
    assert one[2].startswith(f"{one_line(text)}: {one_line(text)}; ")


def test_counters_that_are_not_worse_are_no_annotation() -> None:
    assert annotations(judged(counters=(counter(2, 1, is_worse=False), counter(1, 2, is_worse=None)))) == ""


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
