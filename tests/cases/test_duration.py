import pytest

from dpbench.text.quantities import parse_duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("90s", 90), ("2m", 120), ("1.5h", 5400), ("168h", 604_800), ("7", 7), (" 7 ", 7), (7, 7), (0.5, 0.5)],
)
def test_durations(value: object, seconds: float) -> None:
    assert parse_duration(value) == seconds


def test_nothing_is_no_duration() -> None:
    with pytest.raises(ValueError, match="is no duration above 0 and at most 168h"):
        parse_duration(None)
