import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.stats.rounds import Estimate
from dpbench.text.quantities import number, time_unit


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


def test_an_interval_has_the_unit_and_the_decimals_of_its_value() -> None:
    assert Estimate(0.0123456, 0.00999, 0.5).text(1e-3) == "12.3 [10.0, 500.0]"
    assert Estimate(0.0123456, None, None).text(1e-3) == "12.3"


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [((1.01, 1.5), "slower"), ((0.5, 0.99), "faster"), ((0.9, 1.5), ""), ((1.0, 1.5), ""), ((None, None), "")],
)
def test_a_ratio_is_decided_if_its_interval_lacks_one(ends: tuple[float | None, float | None], verdict: str) -> None:
    ratio = Estimate(1.2, *ends)
    assert (ratio.verdict, ratio.is_above_one, ratio.is_below_one) == (
        verdict,
        verdict == "slower",
        verdict == "faster",
    )
    assert ratio.ends == ((1.2, 1.2) if ends == (None, None) else ends)
