"""Durations are read, and numbers are shown with their unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.text.quantities import number, parse_duration, time_unit


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("90s", 90), ("2m", 120), ("1.5h", 5400), ("168h", 604_800), ("7", 7), (" 7 ", 7), (7, 7), (0.5, 0.5)],
)
def test_durations(value: object, seconds: float) -> None:
    assert parse_duration(value) == seconds


def test_nothing_is_no_duration() -> None:
    with pytest.raises(ValueError, match="is no duration above 0 and at most 168h"):
        parse_duration(None)


@pytest.mark.parametrize(
    ("times_s", "name"),
    [([1.0, 100.0], "s"), ([0.999, 100.0], "ms"), ([0.001], "ms"), ([0.0009], "us"), ([1e-9], "us"), ([], "s")],
)
def test_the_shortest_time_defines_the_unit(times_s: list[float], name: str) -> None:
    assert time_unit(times_s)[1] == name


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1, "1.00"), (0.81234, "0.812"), (12.34, "12.3"), (1234567.8, "1,234,568"), (0.000123, "0.000123")],
)
def test_numbers_have_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


@given(st.floats(1e-6, 1e12))
def test_a_printed_number_is_within_half_a_percent(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=0.0051)
