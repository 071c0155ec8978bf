"""Vector clocks know which operations have finished when another one runs."""

from itertools import count

from dpbench.simulator.streams import StreamOrder

_ticks = count(1)


def launch(order, stream):
    tick = next(_ticks)
    order.launch(stream, tick)
    return tick


def test_a_stream_is_in_order_with_itself():
    order = StreamOrder()
    tick = launch(order, 1)
    assert order.precedes(1, tick, later=1)


def test_two_streams_have_no_order_until_one_waits():
    order = StreamOrder()
    tick = launch(order, 1)
    assert not order.precedes(1, tick, later=2)
    order.wait(2, order.now(1))
    assert order.precedes(1, tick, later=2)


def test_an_event_covers_only_what_was_before_it():
    order = StreamOrder()
    before = launch(order, 1)
    event = order.now(1)
    after = launch(order, 1)
    order.wait(2, event)
    assert order.precedes(1, before, later=2)
    assert not order.precedes(1, after, later=2)


def test_waits_are_transitive():
    order = StreamOrder()
    tick = launch(order, 1)
    order.wait(2, order.now(1))
    order.wait(3, order.now(2))
    assert order.precedes(1, tick, later=3)


def test_a_wait_orders_only_the_waiting_stream():
    order = StreamOrder()
    order.wait(2, order.now(1))
    tick = launch(order, 2)
    assert not order.precedes(2, tick, later=1)


def test_a_wait_of_the_host_counts_for_every_stream_even_a_new_one():
    order = StreamOrder()
    tick = launch(order, 1)
    launch(order, 2)
    order.host_wait(order.now(1))
    assert order.precedes(1, tick, later=2)
    assert order.precedes(1, tick, later=99)
    later = launch(order, 1)
    assert not order.precedes(1, later, later=2)


def test_is_over_needs_all_of_a_clock():
    order = StreamOrder()
    clock = {1: launch(order, 1), 2: launch(order, 2)}
    order.wait(3, order.now(1))
    assert not order.is_over(clock, later=3)
    order.wait(3, order.now(2))
    assert order.is_over(clock, later=3)


def test_waits_counts_only_waits_that_change_a_clock():
    order = StreamOrder()
    launch(order, 1)
    order.wait(2, order.now(1))
    seen = order.waits
    order.wait(2, order.now(1))
    assert order.waits == seen
    order.host_wait(order.now(1))
    assert order.waits == seen + 1
