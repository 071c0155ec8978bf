"""A gate's judgement as JUnit XML, which most CI systems read.

The elements follow jenkinsci/xunit-plugin, junit-10.xsd, because JUnit XML has no standard.
"""

from xml.etree import ElementTree as ET

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.per_benchmark import BenchmarkFinding, findings
from dpbench.report.gate.wording import circumstances, counted, headline, reliability, revision
from dpbench.sweep.outside import one_line

_TAGS = {Verdict.SLOWER: "failure", Verdict.UNDECIDED: "skipped", Verdict.BROKEN: "error"}
_ALL = {0: "all counters", 2: "all histories"}


def gate_junit(judgement: Judgement) -> str:
    """Return one test case for each finding and for each tier without one.

    If none of these has the overall verdict, one more case has it. The text has printable characters only, because
    XML 1.0 forbids some of the others.
    """
    cases = [*findings(judgement), *_quiet_tiers(judgement)]
    if judgement.verdict not in {case.verdict for case in cases}:
        cases.append(BenchmarkFinding(-1, "gate", judgement.verdict, "gate", one_line(judgement.why)))
    totals = _totals(cases, judgement.duration_s)
    root = ET.Element("testsuites", totals)
    suite = ET.SubElement(root, "testsuite", totals | _of_suite(judgement, cases))
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(judgement).items():
        ET.SubElement(properties, "property", name=name, value=value)
    for case in cases:
        suite.append(_testcase(case))
    notes = map(one_line, judgement.notes)
    lines = [headline(judgement), *reliability(judgement), *notes, circumstances(judgement)]
    ET.SubElement(suite, "system-out").text = "\n".join(lines)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _quiet_tiers(judgement: Judgement) -> list[BenchmarkFinding]:
    """Passing cases for the tiers that found nothing. A tier that was not asked for has none."""
    if judgement.verdict is Verdict.BROKEN:
        return []
    found = {0: judgement.counters or not judgement.counted_cases, 2: judgement.drifts}
    quiet = [tier for tier in _ALL if tier in judgement.tiers and not found[tier]]
    names = _ALL | ({0: f"counters, {counted(judgement)}"} if judgement.uncounted_cases else {})
    return [BenchmarkFinding(tier, names[tier], Verdict.PASS, names[tier], "nothing changed") for tier in quiet]


def _totals(cases: list[BenchmarkFinding], duration_s: float) -> dict[str, str]:
    return {
        "name": "dpbench gate",
        "tests": str(len(cases)),
        "failures": _count(cases, Verdict.SLOWER),
        "errors": _count(cases, Verdict.BROKEN),
        "time": _seconds(duration_s),
    }


def _count(cases: list[BenchmarkFinding], verdict: Verdict) -> str:
    return str(sum(case.verdict is verdict for case in cases))


def _of_suite(judgement: Judgement, cases: list[BenchmarkFinding]) -> dict[str, str]:
    """The attributes that the schema has for a suite, and not for all suites together."""
    attributes = {"skipped": _count(cases, Verdict.UNDECIDED), "timestamp": one_line(judgement.started_at)}
    if judgement.environment is None:
        return attributes
    return attributes | {"hostname": one_line(judgement.environment.hostname)}


def _properties(judgement: Judgement) -> dict[str, str]:
    return {
        "verdict": str(judgement.verdict),
        "base": revision(judgement.base),
        "head": revision(judgement.head),
        "tiers": " ".join(map(str, judgement.tiers)),
    }


def _testcase(case: BenchmarkFinding) -> ET.Element:
    classname = "dpbench.gate" if case.tier < 0 else f"dpbench.gate.tier{case.tier}"
    element = ET.Element("testcase", classname=classname, name=case.benchmark)
    if case.step_time_s is not None:
        element.set("time", _seconds(case.step_time_s))
    text = "\n".join([case.message, *case.details])
    if case.verdict is Verdict.PASS:
        ET.SubElement(element, "system-out").text = text
    else:
        message = f"{case.what}: {case.message}"
        ET.SubElement(element, _TAGS[case.verdict], type=case.what, message=message).text = text
    return element


def _seconds(time_s: float) -> str:
    return f"{time_s:.6f}"
