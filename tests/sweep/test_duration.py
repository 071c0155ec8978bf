import pytest

from dpbench.sweep.quantities import parse_duration


@pytest.mark.parametrize(
    ("value", "seconds"), [("90s", 90), ("2m", 120), ("1.5h", 5400), ("7", 7), (" 7 ", 7), (7, 7), (0.5, 0.5)]
)
def test_durations(value: object, seconds: float) -> None:
    assert parse_duration(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0",
        "0s",
        "-1",
        "2 m",
        "2d",
        "1e3",
        "inf",
        "٣",
        0,
        -1,
        float("nan"),
        float("inf"),
        True,
        None,
        [1],
        "9" * 400,
    ],
)
def test_no_durations(value: object) -> None:
    with pytest.raises(ValueError, match="is no duration above 0"):
        parse_duration(value)
