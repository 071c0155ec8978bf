"""Regions agree with the set of all bytes of a strided tensor."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.simulator.memory.regions import Region, region


def bytes_of(address, sizes, strides, itemsize):
    elements = {sum(i * s for i, s in zip(at, strides, strict=True)) for at in product(*map(range, sizes))}
    return {address + element * itemsize + byte for element in elements for byte in range(itemsize)}


@st.composite
def views(draw):
    """Draw a view of a 3-dimensional tensor: sliced, transposed, expanded."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=3, max_size=3))
    strides = [sizes[1] * sizes[2], sizes[2], 1]
    offset = 0
    for d in range(3):
        step, start = draw(st.integers(1, 2)), draw(st.integers(0, sizes[d] - 1))
        offset += start * strides[d]
        sizes[d] = draw(st.integers(1, -(-(sizes[d] - start) // step)))
        strides[d] *= step
    if draw(st.booleans()):
        strides[draw(st.integers(0, 2))] = 0
    order = draw(st.permutations(range(3)))
    return offset * 4, tuple(sizes[d] for d in order), tuple(strides[d] for d in order), 4


@settings(deadline=None)
@given(views(), views())
def test_overlap_is_exactly_a_common_byte(one, other):
    assert region(*one).overlaps(region(*other)) == bool(bytes_of(*one) & bytes_of(*other))


@settings(deadline=None)
@given(views())
def test_bounds_are_exactly_the_first_and_last_byte(view):
    bounds, truth = region(*view), bytes_of(*view)
    assert (bounds.start, bounds.stop) == (min(truth), max(truth) + 1)
    assert (bounds.runs is None) == (len(truth) == bounds.stop - bounds.start)


@pytest.mark.parametrize("sizes", [(0,), (3, 0), (0, 3)])
def test_a_tensor_without_elements_has_no_bytes(sizes):
    empty = region(64, sizes, (1,) * len(sizes), 4)
    assert empty.start == empty.stop
    assert not empty.overlaps(Region(0, 1000))


def test_columns_of_a_matrix_do_not_overlap():
    left, right = region(0, (8, 4), (8, 1), 4), region(16, (8, 4), (8, 1), 4)
    assert left.stop > right.start
    assert not left.overlaps(right)
