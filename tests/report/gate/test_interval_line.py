"""An interval as characters on a line around 1."""

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.gate.judgement import TimeRatio
from dpbench.report.gate.interval_line import ends_of, interval_line, span_of
from dpbench.report.markdown import escaped

TENTH = 10 * log(1.01)


def line(value: float, low: float, high: float, span: float = TENTH) -> str:
    return interval_line(TimeRatio(value=value, low=low, high=high), span)


@pytest.mark.parametrize(
    ("found", "drawn"),
    [
        ((1.0, 1.0, 1.0), "┄┄┄┄┄┄┄┄┄┄●┄┄┄┄┄┄┄┄┄┄"),
        ((1.03, 0.98, 1.05), "┄┄┄┄┄┄┄┄━━┿━━●━━┄┄┄┄┄"),
        ((1.05, 1.03, 1.06), "┄┄┄┄┄┄┄┄┄┄│┄┄━━●━┄┄┄┄"),
        ((0.95, 0.93, 0.96), "┄┄┄━━●━┄┄┄│┄┄┄┄┄┄┄┄┄┄"),
        ((1.3, 1.05, 1.5), "┄┄┄┄┄┄┄┄┄┄│┄┄┄┄━━━━━►"),
        ((0.5, 0.4, 0.99), "◄━━━━━━━━━│┄┄┄┄┄┄┄┄┄┄"),
        ((1.02, 1.001, 1.04), "┄┄┄┄┄┄┄┄┄┄│━●━━┄┄┄┄┄┄"),
    ],
)
def test_the_value_its_interval_and_one_have_their_places(found, drawn):
    assert line(*found) == drawn
    assert len(drawn) == 21


@given(
    st.floats(0.01, 100),
    st.floats(0, 5),
    st.floats(0, 5),
    st.floats(0.01, 1),
)
def test_every_line_has_one_value_at_most_and_the_same_length(value, below, above, span):
    drawn = line(value, value * exp(-below), value * exp(above), span)
    assert len(drawn) == 21
    assert drawn.count("●") <= 1
    if abs(log(value)) < span:
        assert "●" in drawn or drawn[0] == "◄" or drawn[-1] == "►"


def test_a_line_shows_all_ratios_but_neither_less_than_two_percent_nor_more_than_double():
    def span(*ends):
        return exp(span_of([TimeRatio(value=1, low=1, high=end) for end in ends]))

    assert span() == pytest.approx(1.02)
    assert span(1.001) == pytest.approx(1.02)
    assert span(1.1, 1.3) == pytest.approx(1.3)
    assert span(40) == pytest.approx(2)
    assert ends_of(log(1.25)) == "0.80 … 1 … 1.25"


def test_a_ratio_of_zero_is_an_arrow():
    assert line(0.0, 0.0, 0.0) == "◄┄┄┄┄┄┄┄┄┄│┄┄┄┄┄┄┄┄┄┄"


def test_the_characters_are_no_markdown():
    assert not set("┄│━┿●◄►") & set("|`*_~<>&[]!#@:-\\")
    assert escaped("┄") != "┄"  # `escaped` would spend ten bytes on each
