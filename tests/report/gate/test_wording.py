"""The digits and lines that all forms of a judgement share."""

import pytest

from dpbench.gate.judgement import FalseAlarms, Revision
from dpbench.gate.words import growth
from dpbench.report.gate.verdict_tables import (
    growth_between,
    one_line,
    reliability,
    revision,
    share,
)
from tests.report.gate.making_gate import HOSTILE, LANES, PASS, judged, time, unmeasured


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0 %"), (3e-5, "0.003 %"), (0.0015, "0.15 %"), (0.05, "5 %")),
        *((0.1, "10 %"), (0.125, "12.5 %"), (2.0, "200 %"), (12.0, "1,200 %")),
    ],
)
def test_a_share_is_a_percentage_of_three_digits_and_never_rounds_to_zero(value: float, text: str) -> None:
    assert share(value) == text


def test_growth_always_has_its_sign_and_no_zero_is_negative() -> None:
    assert [growth(x) for x in (1.052, 0.9, 1, 0.99999, 21)] == ["+5.2 %", "-10.0 %", "+0.0 %", "+0.0 %", "+2,000.0 %"]
    assert growth_between(0.02, 0.023) == "+15.0 %"
    assert growth_between(0, 1) == "-"


def test_one_line_has_printable_characters_only() -> None:
    line = one_line(HOSTILE)
    assert line.isprintable()
    assert "\x1b" in HOSTILE
    assert line.endswith("~~t~~ \\ $m$ ::error::f # h [31m 31m g h i")


@pytest.mark.parametrize(
    ("asked", "commit", "text"),
    [
        ("main", "0123456789abcdef", "0123456789 (main) A subject"),
        ("0123456", "0123456789abcdef", "0123456789 A subject"),
        ("0123456789abcdef", "0123456789abcdef", "0123456789 A subject"),
        ("no-such", None, "no-such A subject"),
        ("", None, "worktree A subject"),
    ],
)
def test_a_revision_is_its_hash_and_the_text_that_was_typed(asked: str, commit: str | None, text: str) -> None:
    assert revision(Revision(asked=asked, commit=commit, subject="A subject")) == text


@pytest.mark.parametrize(
    ("alarms", "upper", "says"),
    [(0, 0.0015, True), (0, 0.2, True), (0, 0.201, False), (1, 0.975, False), (2, 0.4, True)],
)
def test_a_rate_of_false_alarms_is_shown_once_it_says_something(alarms, upper, says) -> None:
    rate = FalseAlarms(alarms=alarms, of=8, upper=upper, gates="twins")
    design = "equal code called slower: by design in at most 1 % of gates"
    measured = f"; measured: {alarms} of 8, at most {share(upper)} (twins)" if says else ""
    assert reliability(judged(false_alarms=rate))[0] == design + measured


def test_reliability_has_the_smallest_detectable_change() -> None:
    counts = "a count of 1 in any counter that is not tolerated (420 cases counted)"
    assert reliability(judged(counted_cases=420))[1] == f"smallest detectable change: {counts}"
    assert reliability(PASS)[1] == (
        f"smallest detectable change: {counts} and 1.1 % of a step's time, nine times in ten"
    )
    times = (time(detectable=0.034), time(LANES), unmeasured())
    assert reliability(judged(counted_cases=1, times=times))[1] == (
        "smallest detectable change: a count of 1 in any counter that is not tolerated (1 case counted) and "
        "1.1 % to 3.4 %, by benchmark, of a step's time, nine times in ten"
    )
