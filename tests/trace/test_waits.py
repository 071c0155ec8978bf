"""Gaps, idle shares and overlaps of timelines made by hand."""

import pytest

from dpbench.trace.critical import covered, idle_shares, overlap, overlapped_share
from dpbench.trace.timeline import Wait
from tests.trace.made import COPIES, MAIN, ONE, ZERO, compute, host, move, step, timeline


def test_the_path_goes_back_over_what_ended_last():
    assert step().path == [0, 2, 3, 4]
    assert step().length == 20
    assert timeline().path == []
    assert timeline().length == 0


def test_a_gap_is_from_the_end_of_a_span_to_the_next_one_and_has_its_cause():
    assert step().waits() == [Wait(ZERO, 0.0, 1, 0), Wait(ONE, 0.0, 1, 0), Wait(ZERO, 3, 18, 3)]


def test_copies_threads_before_their_start_and_spans_without_a_cause_have_no_gap():
    assert timeline(compute(ZERO, 5, 6)).waits() == []
    assert timeline(move(0, 1), move(5, 6, 0)).waits() == []
    assert timeline(compute(ZERO, 0, 3), host(3, 4, 0), host(6, 7, 1)).waits() == []
    assert timeline(host(0, 1), compute(ZERO, 0, 6), host(6, 7, 0, 1)).waits() == [Wait(MAIN, 1, 6, 1)]


def test_a_stream_for_copies_alone_waits_for_nothing():
    both = timeline(host(0, 1), move(5, 6, 0, row=ZERO), move(8, 9, 0, row=ZERO))
    assert both.waits() == []
    computing = timeline(host(0, 8), move(5, 6, 0, row=ZERO), compute(ZERO, 8, 9, 0))
    assert [(wait.row, wait.start, wait.finish) for wait in computing.waits()] == [(ZERO, 0.0, 5), (ZERO, 6, 8)]


def test_stretches_that_overlap_count_once():
    assert covered([(3, 4), (0, 1), (1, 2), (3.5, 6), (7, 7)]) == 5
    assert overlap([(0, 2), (3, 6), (3, 5)], [(1, 4), (5, 9)]) == 3
    assert overlap([(0.1, 0.2)], [(0.2, 0.3)]) == 0


def test_a_device_is_idle_when_it_does_not_compute():
    assert idle_shares(step()) == pytest.approx({"device 0": 16 / 20, "device 1": 17 / 20})
    two = timeline(compute(ZERO, 0, 4), compute(ZERO, 2, 6), compute(ONE, 0, 8))
    assert idle_shares(two) == pytest.approx({"device 0": 2 / 8, "device 1": 0})


def test_the_overlap_is_the_mean_over_the_devices():
    assert overlapped_share(step()) == 0
    # the move takes 10 s: device 0 computes in 4 of them, device 1 in 2
    half = timeline(move(0, 10), compute(ZERO, 1, 5), compute(ONE, 8, 12))
    assert overlapped_share(half) == pytest.approx((0.4 + 0.2) / 2)
    assert overlapped_share(timeline(compute(ZERO, 0, 1))) is None


def test_rows_are_the_host_then_the_devices_each_in_the_order_of_first_use():
    assert step().rows == [MAIN, ZERO, ONE, COPIES]
    assert timeline(move(0, 1), compute(ONE, 1, 2), compute(ZERO, 2, 3)).rows == [ZERO, COPIES, ONE]
