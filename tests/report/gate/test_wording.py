"""The digits and lines that all forms of a judgement share."""

import pytest

from dpbench.gate.judgement import FalseAlarms, Revision, TimeRatio
from dpbench.report.gate.tables import (
    circumstances,
    growth,
    growth_between,
    headline,
    interval,
    measured,
    one_line,
    reliability,
    revision,
    share,
)
from tests.report.gate.making_gate import BROKEN, FALSE_ALARMS, HOSTILE, LANES, PASS, STEP, judged, time, unmeasured


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


def test_a_ratio_has_its_interval() -> None:
    assert interval(TimeRatio(value=1.052, low=1.041, high=1.063)) == "1.052 [1.041, 1.063]"


def test_one_line_has_printable_characters_only() -> None:
    found = one_line(HOSTILE)
    assert found.isprintable()
    assert "\x1b" in HOSTILE
    assert found.endswith("~~t~~ \\ $m$ ::error::f # h [31m 31m g h i")


def test_the_headline_is_the_verdict_and_why() -> None:
    assert headline(judged("undecided", why="too noisy\n")) == "Undecided: too noisy"


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


def test_reliability_has_the_rate_of_false_alarms() -> None:
    assert reliability(PASS)[0] == (
        "identical code called slower: 0 of 2,000, at most 0.15 %; resampled from 60 rounds of the self-test of "
        "2026-11-21 on this machine (by design at most 1 % of suites)"
    )
    alarms = FalseAlarms(alarms=1200, of=2000, upper=0.62, gates="twins")
    assert reliability(judged(false_alarms=alarms))[0].startswith(
        "identical code called slower: 1,200 of 2,000, at most 62 %; twins ("
    )


def test_reliability_names_the_command_to_run_if_nothing_was_measured() -> None:
    assert reliability(BROKEN) == (
        "identical code called slower: not measured on this machine; benchmarks/gate_self_test.py of dpbench's "
        "checkout measures it (by design at most 1 % of suites)",
        "smallest detectable change: not known, nothing was measured",
    )


def test_reliability_has_the_smallest_detectable_change() -> None:
    counts = "a count of 1 in any counter (420 cases counted)"
    assert reliability(judged(counted_cases=420))[1] == f"smallest detectable change: {counts}"
    assert reliability(PASS)[1] == (
        f"smallest detectable change: {counts} and 1.1 % of a step's time, nine times in ten"
    )
    times = (time(detectable=0.034), time(LANES), unmeasured())
    assert reliability(judged(counted_cases=1, times=times))[1] == (
        "smallest detectable change: a count of 1 in any counter (1 case counted) and 1.1 % to 3.4 %, by benchmark, "
        "of a step's time, nine times in ten"
    )


def test_measured_is_the_ratio_and_its_noise_in_one_line() -> None:
    assert measured(time()) == (
        "+1.0 %, head / base 1.010 [1.000, 1.020]; tolerated 2 %; smallest seen 1.1 %; "
        "base / base 1.001 [0.997, 1.005]; 24 rounds"
    )
    assert measured(unmeasured(STEP)) == "nothing measured; tolerated 2 %; 0 rounds"


def test_circumstances_are_the_time_and_the_machine() -> None:
    assert circumstances(judged(false_alarms=FALSE_ALARMS, duration_s=59.7)) == (
        "took 1 min 0 s from 2026-11-21T18:00:00Z on here: a CPU, 2 cores, Linux, python 3.11.9, torch 2.13.0"
    )
    assert circumstances(BROKEN) == "took 4 min 32 s from 2026-11-21T18:00:00Z"
