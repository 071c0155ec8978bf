"""One finding for each benchmark, with verdict and reasons, and the forms that are made of them.

GitHub's annotations are workflow commands, one a line. JUnit XML is what most other CI systems read. It has no
standard, so its elements follow jenkinsci/xunit-plugin, junit-10.xsd.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar
from xml.etree import ElementTree as ET

from dpbench.gate.judgement import Accepted, CounterChange, Drift, Judgement, State, TimeJudgement
from dpbench.gate.words import acceptance, count, direction, headline
from dpbench.judge.decision import Verdict
from dpbench.report.gate.changed_counters import cause_lines, counter_groups, worst_first
from dpbench.report.gate.verdict_tables import (
    circumstances,
    counted,
    drifted,
    measured,
    reliability,
    revision,
    slowest_first,
)
from dpbench.text.outside import one_line

Changed = TypeVar("Changed", CounterChange, Drift)


@dataclass(frozen=True)
class BenchmarkFinding:
    """What one tier found of one benchmark. Every text is one line.

    `verdict` is PASS for an accepted regression; `is_notable` then marks it for a notice. `what` is such as ``step time
    slower``. `step_time_s` is head's.
    """

    tier: int
    benchmark: str
    verdict: Verdict
    what: str
    message: str
    is_notable: bool = False
    details: tuple[str, ...] = ()
    step_time_s: float | None = None


def findings(judgement: Judgement) -> tuple[BenchmarkFinding, ...]:
    """The worst first. Tiers 0 and 2 have findings only for benchmarks that changed.

    A drift passes if the whole judgement passes.
    """
    times = (_time(time) for time in slowest_first(judgement.times))
    return (*_counters(judgement), *times, *_drifts(judgement))


def _counters(judgement: Judgement) -> Iterator[BenchmarkFinding]:
    for benchmark, group in _by_benchmark(worst_first(judgement.counters)):
        states = {change.state for change in group}
        named = [state for state in (State.WORSE, State.ACCEPTED, State.NOTED) if state in states]
        yield BenchmarkFinding(
            tier=0,
            benchmark=benchmark,
            verdict=Verdict.SLOWER if State.WORSE in states else Verdict.PASS,
            what=f"counters {[*named, 'changed'][0]}",
            message=_change(group[0]) + _others(group[1:]),
            is_notable=bool({State.ACCEPTED, State.NOTED} & states),
            details=(
                *(_change(change, f" ({direction(change)})") for change in group),
                *_causes(judgement, group[0].benchmark),
            ),
        )


def _others(changes: Sequence[CounterChange]) -> str:
    """Such as ``; also 2 worse, 1 better``."""
    states = Counter("accepted" if change.accepted else direction(change) for change in changes)
    return f"; also {', '.join(f'{number:,} {state}' for state, number in states.items())}" if changes else ""


def _change(change: CounterChange, state: str = "") -> str:
    text = f"{change.counter}: {count(change.base)} -> {count(change.head)}{state}"
    traded = f"; the time of {change.traded_for} is not longer" if change.traded_for else ""
    return one_line(text + traded) + _accepted(change.accepted)


def _causes(judgement: Judgement, benchmark: str) -> Iterable[str]:
    """The code behind the benchmark's worse counters, each cause once."""
    blames = [blame for blame in judgement.blames if blame.benchmark == benchmark]
    return dict.fromkeys(f"    {line}" for blame in blames for line in cause_lines(blame))


def _time(time: TimeJudgement) -> BenchmarkFinding:
    is_accepted = time.accepted is not None and time.verdict is not Verdict.BROKEN
    return BenchmarkFinding(
        tier=1,
        benchmark=one_line(time.benchmark),
        verdict=Verdict.PASS if is_accepted or time.verdict is Verdict.FASTER else time.verdict,
        what=f"step time {time.verdict}{', accepted' if is_accepted else ''}",
        message=f"{measured(time)}; {one_line(time.why)}{_accepted(time.accepted)}",
        is_notable=is_accepted,
        step_time_s=time.head_step_s,
    )


def _drifts(judgement: Judgement) -> Iterator[BenchmarkFinding]:
    latest_first = tuple(reversed(judgement.drifts))
    for benchmark, group in _by_benchmark(latest_first):
        is_open = any(drift.accepted is None for drift in group)
        yield BenchmarkFinding(
            tier=2,
            benchmark=benchmark,
            verdict=Verdict.SLOWER if is_open and judgement.verdict is not Verdict.PASS else Verdict.PASS,
            what="drift" if is_open else "drift accepted",
            message=_drift(group[0]),
            is_notable=True,
            details=tuple(map(_drift, group)),
            step_time_s=group[0].after_s,
        )


def _drift(drift: Drift) -> str:
    return drifted(drift) + _accepted(drift.accepted)


def _by_benchmark(changeds: Iterable[Changed]) -> Iterator[tuple[str, list[Changed]]]:
    groups: dict[str, list[Changed]] = defaultdict(list)
    for changed in changeds:
        groups[changed.benchmark].append(changed)
    yield from ((one_line(benchmark), group) for benchmark, group in groups.items())


def _accepted(accepted: Accepted | None) -> str:
    return "" if accepted is None else f"; {acceptance(accepted)}"


_LEVELS = {Verdict.SLOWER: "error", Verdict.BROKEN: "error", Verdict.UNDECIDED: "warning", Verdict.PASS: "notice"}


def annotations(judgement: Judgement) -> str:
    """A line for each place with worse counters, and for each benchmark that does not pass or is accepted.

    A line for the whole comes first, because GitHub shows only ten errors and ten warnings of a step; the log has the
    rest (actions/toolkit, docs/problem-matchers.md).
    """
    return "".join(f"{line}\n" for line in _lines(judgement))


def _lines(judgement: Judgement) -> Iterator[str]:
    if judgement.verdict is not Verdict.PASS:
        message = "\n".join([headline(judgement), *reliability(judgement)])
        yield _command(_LEVELS[judgement.verdict], f"dpbench gate: {judgement.verdict}", message)
    for group in counter_groups(judgement):
        if group.is_worse:
            yield _command("error", "counters worse", "\n".join([group.line, *group.details]))
    every = findings(judgement)
    yield from (_annotation(finding) for finding in every if finding.tier != 0 and finding.verdict is not Verdict.PASS)
    yield from (_annotation(finding) for finding in every if finding.verdict is Verdict.PASS and finding.is_notable)


def _annotation(finding: BenchmarkFinding) -> str:
    level = _LEVELS[finding.verdict]
    return _command(level, f"{finding.what}: {finding.benchmark}", f"{finding.benchmark}: {finding.message}")


def _command(level: str, title: str, message: str) -> str:
    """``::level title=...::message``, escaped as in actions/toolkit, core/src/command.ts."""
    return f"::{level} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


_TAGS = {Verdict.SLOWER: "failure", Verdict.UNDECIDED: "skipped", Verdict.BROKEN: "error"}
_ALL = {0: "all counters", 2: "all histories"}


def gate_junit(judgement: Judgement) -> str:
    """A test case for each finding and for each tier without one; one more if none has the overall verdict.

    The text has printable characters only, because XML 1.0 forbids some of the others.
    """
    cases = [*findings(judgement), *_quiet_tiers(judgement)]
    if judgement.verdict not in {case.verdict for case in cases}:
        cases.append(BenchmarkFinding(-1, "gate", judgement.verdict, "gate", one_line(judgement.why)))
    number = Counter(case.verdict for case in cases)
    totals = {
        "name": "dpbench gate",
        "tests": str(len(cases)),
        "failures": str(number[Verdict.SLOWER]),
        "errors": str(number[Verdict.BROKEN]),
        "time": _seconds(judgement.duration_s),
    }
    # the schema has these for a suite, and not for all suites together
    of_suite = {"skipped": str(number[Verdict.UNDECIDED]), "timestamp": one_line(judgement.started_at)}
    if judgement.environment is not None:
        of_suite["hostname"] = one_line(judgement.environment.hostname)
    root = ET.Element("testsuites", totals)
    suite = ET.SubElement(root, "testsuite", totals | of_suite)
    properties = {
        "verdict": str(judgement.verdict),
        "base": revision(judgement.base),
        "head": revision(judgement.head),
        "tiers": " ".join(map(str, judgement.tiers)),
    }
    parent = ET.SubElement(suite, "properties")
    for name, value in properties.items():
        ET.SubElement(parent, "property", name=name, value=value)
    suite.extend(map(_testcase, cases))
    notes = map(one_line, judgement.notes)
    lines = [headline(judgement), *reliability(judgement), *notes, circumstances(judgement)]
    ET.SubElement(suite, "system-out").text = "\n".join(lines)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _quiet_tiers(judgement: Judgement) -> list[BenchmarkFinding]:
    """Passing cases for the tiers that found nothing. A tier that was not asked for has none."""
    if judgement.verdict is Verdict.BROKEN:
        return []
    has_findings = {0: judgement.counters or not judgement.counted_cases, 2: judgement.drifts}
    quiet = [tier for tier in _ALL if tier in judgement.tiers and not has_findings[tier]]
    names = _ALL | ({0: f"counters, {counted(judgement)}"} if judgement.uncounted_cases else {})
    return [BenchmarkFinding(tier, names[tier], Verdict.PASS, names[tier], "nothing changed") for tier in quiet]


def _testcase(case: BenchmarkFinding) -> ET.Element:
    classname = "dpbench.gate" if case.tier < 0 else f"dpbench.gate.tier{case.tier}"
    element = ET.Element("testcase", classname=classname, name=case.benchmark)
    if case.step_time_s is not None:
        element.set("time", _seconds(case.step_time_s))
    if case.verdict is Verdict.PASS:
        outcome = ET.SubElement(element, "system-out")
    else:
        message = f"{case.what}: {case.message}"
        outcome = ET.SubElement(element, _TAGS[case.verdict], type=case.what, message=message)
    outcome.text = "\n".join(case.details or [case.message])
    return element


def _seconds(time_s: float) -> str:
    return f"{time_s:.6f}"
