"""A reason is printed once, with those that share it."""

from dpbench.text.outside import by_reason


def test_a_reason_is_one_line_however_many_share_it():
    pairs = [("a", "old torch"), ("b", "old torch"), ("c", "too large"), ("a", "old torch")]
    assert by_reason(pairs) == ["a, b: old torch", "c: too large"]
    assert by_reason((i, "old torch") for i in range(40)) == ["0 and 39 more: old torch"]
    assert by_reason([]) == []
