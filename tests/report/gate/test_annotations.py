"""Annotations, parsed as GitHub's runner parses them."""

import pytest

from dpbench.report.gate.annotations import annotations
from dpbench.report.gate.wording import one_line
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
