"""Which tensors travel together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.parallel.layout import Item, plan_buckets, put


def items(*sizes, kind="f"):
    return [Item(kind, size) for size in sizes]


@pytest.mark.parametrize(
    ("sizes", "limit", "first", "expected"),
    [
        ([], 10, 10, []),
        ([1, 1, 1], 10, 10, [[0, 1, 2]]),
        ([5, 5, 5, 5], 10, 10, [[0, 1], [2, 3]]),
        ([20, 1], 10, 10, [[0], [1]]),
        ([1, 1, 1], 1, 1, [[0], [1], [2]]),
        ([2, 2, 8, 8, 2, 8], 10, 4, [[0, 1], [2, 3], [4, 5]]),
    ],
)
def test_a_bucket_is_closed_at_its_limit(sizes, limit, first, expected):
    assert plan_buckets(items(*sizes), limit, first) == expected


def test_the_first_bucket_is_small_only_if_that_costs_no_message():
    assert plan_buckets(items(2, 2, 2, 2), 10, 2) == [[0, 1, 2, 3]]
    assert plan_buckets(items(2, 2, 2, 2, 2, 2), 10, 4) == [[0, 1], [2, 3, 4, 5]]


def test_kinds_do_not_mix_and_an_item_without_a_kind_is_sent_alone():
    mixed = [Item("f", 1), Item("i", 1), Item(None, 1), Item("f", 1), Item("i", 1)]
    assert plan_buckets(mixed, 10, 10) == [[0, 3], [1, 4], [2]]


@given(
    st.lists(st.builds(Item, st.sampled_from(["f", "i", None]), st.integers(0, 50)), max_size=40),
    st.integers(1, 60),
    st.integers(1, 60),
)
def test_every_item_is_sent_once_in_order(sequence, limit, first):
    buckets = plan_buckets(sequence, limit, first)
    assert sorted(i for bucket in buckets for i in bucket) == list(range(len(sequence)))
    assert all(bucket == sorted(bucket) for bucket in buckets)
    assert len(buckets) <= len(plan_buckets(sequence, limit, limit))


@pytest.mark.parametrize("indices", [[1, 2, 3], [0, 2, 4], [4]])
def test_put(indices):
    into = list("abcde")
    put([i * 10 for i in indices], into, indices)
    assert into == [i * 10 if i in indices else "abcde"[i] for i in range(5)]
