"""Recordings made by hand, of two lanes. sim:0 is the base's device."""

import pytest

from dpbench.measure.counted.dependencies import dependencies, route_counters
from dpbench.records.recording import Copy, HostWait, Mark, Operator, Recording, Wait

BYTES = 100


class Log:
    """Makes a recording. Stream i belongs to device i; streams 2 and 3 are second streams of devices 0 and 1."""

    def __init__(self):
        self.recording = Recording(devices=2, streams={0: 0, 1: 1, 2: 0, 3: 1})

    def _add(self, kind, **fields):
        event = kind(id=len(self.recording.events) + 1, **fields)
        self.recording.events.append(event)
        return event.id

    def mark(self, name):
        self._add(Mark, name=name)

    def run(self, device, *inputs, node=None, stream=None):
        stream = device if stream is None else stream
        return self._add(Operator, name="op", device=device, stream=stream, inputs=inputs, node=node)

    def copy(self, source, destination, *inputs, node=None, stream=None):
        """Copy as the simulator does: on the source's stream, and the destination's stream waits."""
        stream = (destination if source is None else source) if stream is None else stream
        fields = {"source": source, "destination": destination, "size_bytes": BYTES, "node": node}
        event = self._add(Copy, stream=stream, inputs=inputs, **fields)
        if destination is not None and destination != stream:
            self.wait(destination, event)
        return event

    def wait(self, stream, *after):
        self._add(Wait, stream=stream, after=after)

    def host_wait(self, *after):
        self._add(HostWait, after=after)

    def measures(self):
        return dependencies(self.recording, home=0)


def forward(log, buckets_on_side_streams):
    """Send two buckets of parameters to lane 1. The first layer reads the first bucket."""
    log.mark("forward")
    chunk = log.copy(None, 1)
    log.run(1, chunk)  # reads the batch alone, like a cast
    if buckets_on_side_streams:
        first, second = (
            log._add(Copy, source=0, destination=1, size_bytes=BYTES, stream=2, inputs=()) for _ in range(2)
        )
        log.wait(1, first)
    else:
        first, second = log.copy(0, 1), log.copy(0, 1)
    log.run(1)  # reads neither, like positions made on the lane
    layer = log.run(1, chunk, first)
    if buckets_on_side_streams:
        log.wait(1, second)
    log.run(1, layer, second)


def test_the_whole_broadcast_is_before_the_first_layer_if_the_stream_waits_for_all():
    log = Log()
    forward(log, buckets_on_side_streams=False)
    measures = log.measures()
    assert (measures.broadcast_bytes, measures.before_first_layer_bytes) == (2 * BYTES, 2 * BYTES)


def test_only_the_first_bucket_is_before_it_if_the_stream_waits_for_the_second_later():
    log = Log()
    forward(log, buckets_on_side_streams=True)
    measures = log.measures()
    assert (measures.broadcast_bytes, measures.before_first_layer_bytes) == (2 * BYTES, BYTES)


def test_a_wait_of_the_host_comes_before_the_first_layer_too():
    log = Log()
    log.mark("forward")
    chunk = log.copy(None, 1)
    first, second = (log._add(Copy, source=0, destination=1, size_bytes=BYTES, stream=2, inputs=()) for _ in range(2))
    log.host_wait(second)
    log.run(1, chunk, first)
    assert log.measures().before_first_layer_bytes == 2 * BYTES


def test_a_copy_of_the_batch_between_devices_is_not_broadcast():
    log = Log()
    log.mark("forward")
    chunk = log.copy(0, 1, log.copy(None, 0))
    log.run(1, chunk, log.copy(0, 1))
    assert log.measures().broadcast_bytes == BYTES


def backward(log, first_half_alone, *, on_side_stream, bar=2):
    """Run four operators on each lane. The bucket holds the gradients of the first `bar` of them, or of all."""
    log.mark("backward")
    lanes = {device: [log.run(device, node="MmBackward0") for _ in range(bar)] for device in (0, 1)}
    gradients = {device: list(ran) for device, ran in lanes.items()}
    rest = 4 - bar

    def reduce():
        stream = 3 if on_side_stream else 1
        if on_side_stream:
            log.wait(3, gradients[1][-1])
        packed = log.run(1, *gradients[1], node="Bucket", stream=stream)
        sent = log.copy(1, 0, packed, node="Bucket", stream=stream)
        log.run(0, *gradients[0], sent, node="Bucket", stream=2)

    if first_half_alone and on_side_stream:
        reduce()
    for device, ran in lanes.items():
        ran += [log.run(device, ran[-1], node="MmBackward0") for _ in range(rest)]
        gradients[device] = ran[:bar] if first_half_alone else ran
    if not (first_half_alone and on_side_stream):
        reduce()


def reduction(first_half_alone, *, on_side_stream, bar=2):
    log = Log()
    backward(log, first_half_alone, on_side_stream=on_side_stream, bar=bar)
    measures = log.measures()
    assert measures.reduced_bytes == BYTES
    return measures.ready_at_half_bytes, measures.startable_at_half_bytes


def test_a_bucket_of_the_first_half_sent_at_once_is_ready_and_can_start():
    assert reduction(first_half_alone=True, on_side_stream=True) == (BYTES, BYTES)


def test_a_bucket_of_the_first_half_sent_at_the_end_of_the_lane_is_ready_but_cannot_start():
    assert reduction(first_half_alone=True, on_side_stream=False) == (BYTES, 0)


def test_a_bucket_with_the_last_gradient_is_neither():
    assert reduction(first_half_alone=False, on_side_stream=True) == (0, 0)


def test_one_operator_of_the_second_half_makes_the_bucket_late():
    assert reduction(first_half_alone=True, on_side_stream=True, bar=3) == (0, 0)


@pytest.mark.parametrize(("slow", "startable"), [(None, BYTES), (0, BYTES), (1, 0)])
def test_a_slow_lane_keeps_the_bucket_of_all_lanes_waiting(slow, startable):
    log = Log()
    log.mark("backward")
    lanes = {device: [log.run(device) for _ in range(2)] for device in (0, 1)}
    gradients = [lanes[device][1 if device == slow else 0] for device in (0, 1)]
    log.wait(3, gradients[1])
    sent = log.copy(1, 0, gradients[1], node="Bucket", stream=3)
    total = log.run(0, sent, gradients[0], node="Bucket", stream=2)
    for _ in range(4):
        log.run(
            0, total, node="torch::autograd::AccumulateGrad"
        )  # depends on the reduction, so it is not part of a lane's backward
    measures = log.measures()
    assert measures.ready_at_half_bytes == (BYTES if slow is None else 0)
    assert measures.startable_at_half_bytes == startable


def test_a_copy_from_the_base_to_a_lane_is_not_a_reduction():
    log = Log()
    log.mark("backward")
    log.copy(0, 1, log.run(0), node="GatherBackward")
    assert log.measures().reduced_bytes == 0


def chain(piece_bytes, *threads):
    """Weights go 0 -> 1 -> 2 in two pieces; each lane then has two products, by the host's thread of its own."""
    log = Log()
    log.recording.devices, log.recording.streams = 3, {0: 0, 1: 1, 2: 2}
    log.mark("forward")
    for _ in range(2):
        first = log._add(Copy, source=0, destination=1, size_bytes=2 * BYTES, stream=0)
        log.wait(1, first)
        log._add(Copy, source=1, destination=2, size_bytes=piece_bytes, stream=1, inputs=(first,))
    for device, thread in enumerate(threads):
        log._add(Operator, name="mm", device=device, stream=device, flops=8, thread=thread)
        log._add(Operator, name="mm", device=device, stream=device, flops=8, thread=thread)
    return log.recording


@pytest.mark.parametrize(
    ("threads", "turns", "before"),
    # six calls of thread 0 send the weights; then each lane has two
    [((0, 0, 0), 0, 10), ((0, 1, 2), 2, 10), ((0, 1, 0), 2, 10)],
)
def test_a_chain_has_copies_in_a_row_and_lanes_take_turns(threads, turns, before):
    assert route_counters(chain(70, *threads), home=0) == {
        "copies_in_a_row": 3,  # the first piece, the second piece to lane 1, and on to lane 2
        "passed_on_bytes": 70,
        "calls_before_last_lane": before,
        "turns": turns,
    }


def test_a_lane_that_begins_early_has_fewer_calls_before_it():
    recording = chain(70, 0, 1, 2)
    products = [event for event in recording.events if isinstance(event, Operator)][::2]
    others = [event for event in recording.events if event not in products]
    recording.events = [*others[:7], *products, *others[7:]]  # after the weights
    assert route_counters(recording, home=0)["calls_before_last_lane"] == 8


def test_a_star_passes_nothing_on():
    log = Log()
    log.mark("forward")
    log.copy(None, 1)
    log.copy(0, 1)
    log.copy(1, 0)
    assert route_counters(log.recording, home=0)["passed_on_bytes"] == 0
