"""The critical path in words."""

from dataclasses import replace

import pytest

from dpbench.trace.critical import parts_of_path, path_in_words
from dpbench.trace.timeline import Doing, Moved
from tests.trace.made import ONE, ZERO, compute, host, move, step, timeline


def shown(seconds):
    return f"{seconds:g} s"


def words(*spans):
    return path_in_words(timeline(*spans), shown)


def test_a_device_waits_for_the_gradients_of_a_lane():
    assert path_in_words(step(), shown) == [
        "the host takes 1 s (5%) to issue the work in the forward",
        "device 1 computes 3 s (15%) in the forward",
        "device 0 waits 14 s (70%) for the gradients of lane 1 in the backward",
        "device 0 computes 2 s (10%) in the backward",
    ]


def test_the_parts_add_up_to_the_step():
    assert sum(part.length for part in parts_of_path(step())) == 20
    assert sum(part.share for part in parts_of_path(step())) == pytest.approx(1)


def test_lanes_are_joined_wherever_they_are_on_the_path():
    spans = [compute(ONE, 0, 4), move(4, 5, 0, lane=3), compute(ZERO, 5, 6, 1), move(6, 8, 2, lane=1)]
    three = words(*spans, compute(ZERO, 8, 9, 3))
    assert "device 0 waits 3 s (33%) for the gradients of lanes 1 and 3 in the backward" in three
    spans += [compute(ZERO, 8, 9, 3), move(9, 10, 4, lane=2), compute(ZERO, 10, 11, 5)]
    assert "device 0 waits 4 s (36%) for the gradients of lanes 1 to 3 in the backward" in words(*spans)


def test_lanes_with_a_hole_are_listed_and_a_chain_of_copies_is_for_who_computes_next():
    chain = [compute(ONE, 0, 4), *(move(4 + i, 5 + i, i, lane=lane) for i, lane in enumerate((4, 2, 1)))]
    text = words(*chain, compute(ZERO, 7, 8, 3))
    assert "device 0 waits 3 s (38%) for the gradients of lanes 1, 2 and 4 in the backward" in text


def test_what_is_under_computation_is_no_wait():
    text = words(compute(ONE, 0, 4), compute(ZERO, 0, 9), move(4, 14, 0), compute(ZERO, 14, 16, 1, 2))
    assert "the gradients of lane 1 take 10 s (62%) in the backward, and device 0 computes for 5 s of it" in text


def test_what_nobody_computes_with_is_for_the_host():
    assert words(compute(ZERO, 0, 1), move(1, 3, 0, moved=Moved.OUTPUTS, lane=None, phase="forward")) == [
        "device 0 computes 1 s (33%) in the forward",
        "the host waits 2 s (67%) for the outputs in the forward",
    ]


def test_small_parts_are_one_clause():
    assert words(host(0, 98), compute(ZERO, 98, 99, 0), host(99, 100, 1, phase="backward")) == [
        "the host takes 98 s (98%) to issue the work in the forward",
        "smaller parts take 2 s",
    ]


def test_a_gap_of_the_path_is_said_and_an_overlap_counts_once():
    assert words(compute(ZERO, 2, 4), compute(ONE, 6, 10, 0)) == [
        "no operator runs for 4 s (40%) in the forward",
        "device 0 computes 2 s (20%) in the forward",
        "device 1 computes 4 s (40%) in the forward",
    ]
    assert [part.length for part in parts_of_path(timeline(host(0, 6), compute(ZERO, 2, 10, 0)))] == [2, 8]


def test_a_thread_that_moves_data_itself_does_not_wait():
    own = replace(move(0, 3), device="main thread", lane=None)
    (part,) = parts_of_path(timeline(own))
    assert (part.doing, part.who, part.is_own) == (Doing.MOVE, "main thread", True)
    assert words(own) == ["main thread moves the gradients for 3 s (100%) in the backward"]
