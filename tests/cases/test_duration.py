import pytest

from dpbench.text.quantities import parse_duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("90s", 90), ("2m", 120), ("1.5h", 5400), ("168h", 604_800), ("7", 7), (" 7 ", 7), (7, 7), (0.5, 0.5)],
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
        10**400,
        -(10**400),
        "168.1h",
        "600h",
        "999999999h",
        604_801,
    ],
)
def test_no_durations(value: object) -> None:
    with pytest.raises(ValueError, match="is no duration above 0 and at most 168h"):
        parse_duration(value)
