"""Why readings are missing, in as few words as do."""

import pytest

from dpbench.analysis.over_rounds import notes_on_missing, over_values

PLACES = [("tuned", "cuda:0"), ("tuned", "cuda:1"), ("naive", "cuda:0"), ("naive", "cuda:1")]


def notes(missing, reason="no permission"):
    figures = [(label, place, over_values([reason if place in missing else 1.0])) for label in "ab" for place in PLACES]
    return list(notes_on_missing(figures))


@pytest.mark.parametrize(
    ("missing", "where"),
    [
        (PLACES, ""),
        (PLACES[:2], " (tuned)"),
        (PLACES[::2], " (cuda:0)"),
        (PLACES[:1], " (tuned on cuda:0)"),
        (PLACES[1:], " (tuned on cuda:1, naive on cuda:0, naive on cuda:1)"),
    ],
)
def test_labels_with_one_reason_share_a_line_and_places_are_named_shortly(missing, where):
    assert notes(missing) == [f"a, b: no permission{where}"]


def test_nothing_missing_is_no_line():
    assert notes([]) == []


def test_rounds_without_a_value_are_counted():
    figure = over_values([1.0, "no driver", 2.0, "no driver"])
    assert list(notes_on_missing([("a", ("tuned", ""), figure)])) == ["a: 2 of 4 rounds: no driver"]
