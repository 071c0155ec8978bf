"""The numbers of a step, from recordings made by hand."""

import pytest

from dpbench.projection.machine import Kind
from dpbench.projection.step_counts import AffineCounts, StepCounts, bytes_by_link, count_step, kind_of, merge
from dpbench.records.recording import GradientReady, HostCall, HostCallName, Mark, ModelFacts, Recording
from tests.projection.small_machine import copy, operator

FACTS = ModelFacts(modules=3, parameters=2, buffers=0, parameter_bytes=800, buffer_bytes=0, parameter_sizes=(400, 400))


def step(flops=10**9, size_bytes=1000, batch=4):
    """Return the counts of a step with each kind of event, on two devices."""
    events = [
        Mark(id=0, name="forward"),
        copy(1, None, 0, size_bytes, 0),
        copy(2, None, 1, size_bytes, 1),
        HostCall(id=3, name=HostCallName.EVENT_RECORD),
        copy(4, 0, 1, 300, 0),
        copy(5, 0, 1, 500, 0),
        operator(6, 0, flops=flops, thread=0),
        HostCall(id=7, name=HostCallName.STREAM_WAIT),
        operator(8, 1, flops=flops, thread=0),
        copy(9, 1, 0, size_bytes, 1),
        Mark(id=10, name="backward"),
        copy(11, 0, 1, size_bytes, 0),
        operator(12, 1, "aten.relu.default", flops=0, thread=4),
        copy(13, 1, 0, 800, 1, thread=4),
        GradientReady(id=14, parameter=1, size_bytes=400, device=0),
        GradientReady(id=15, parameter=0, size_bytes=400, device=0),
        Mark(id=16, name="optimiser"),
        operator(17, name="aten.add_.Tensor", flops=0),
        operator(18, name="aten.add_.Tensor", flops=0),
    ]
    return count_step(Recording(2, {0: 0, 1: 1}, events, FACTS), batch, {0: 100, 1: 50})


def test_copies_have_a_purpose():
    sent = step().below("sent")
    assert sent["weights/0/1/bytes"] == 800
    assert (sent["weights/0/1/messages"], sent["weights/0/1/largest"]) == (2, 500)
    assert sent["input/host/1/bytes"] == sent["outputs/1/0/bytes"] == sent["output_gradients/0/1/bytes"] == 1000
    assert sent["gradients/1/0/bytes"] == 800


def test_a_ring_loads_each_hop_once():
    sent = {f"sent/{purpose}/{a}/{b}/bytes": 10.0 for purpose in ("weights", "outputs") for a, b in ((0, 1), (0, 2))}
    sent |= {"sent/gradients/2/0/bytes": 7.0, "sent/gradients/1/0/bytes": 7.0, "sent/input/host/1/bytes": 5.0}
    assert bytes_by_link(StepCounts(3, 3, sent, FACTS)) == {
        "sim:0->sim:1": 20, "sim:0->sim:2": 10, "sim:1->sim:2": 10, "sim:1->sim:0": 7, "sim:2->sim:1": 7,
    }  # fmt: skip


def test_work_is_by_device_phase_and_kind():
    counts = step()
    assert counts.below("work", 0, "forward") == {"flops/matmul": 10**9, "bytes/matmul": 2 * 10**6, "kernels": 1}
    assert counts.below("work", 1, "backward") == {"bytes/elementwise": 2 * 10**6, "kernels": 1}
    assert counts.below("work", 0, "optimiser") == {"bytes/elementwise": 4 * 10**6, "kernels": 1}  # one for both
    assert counts.below("memory") == {"0": 100, "1": 50}
    assert counts.gradient_bytes == (400, 400)


def test_calls_are_by_phase_and_thread_and_those_before_the_last_device_begins_are_early():
    counts = step()
    assert counts.below("host", "forward", 0) == {
        "copy": 5, "event_record": 1, "stream_wait": 1, "forward_python": 2, "forward_native": 2,
    }  # fmt: skip
    assert counts.below("host", "backward", 4) == {"backward": 1, "copy": 1}
    assert counts.below("early") == {
        "copy": 4, "event_record": 1, "stream_wait": 1, "forward_python": 1, "forward_native": 1,
    }  # fmt: skip


def test_lanes_on_threads_begin_together():
    events = [Mark(id=0, name="forward"), HostCall(id=1, name=HostCallName.EVENT_RECORD)]
    events += [operator(2, 0, thread=1), HostCall(id=3, name=HostCallName.EVENT_RECORD), operator(4, 1, thread=2)]
    counts = count_step(Recording(2, {0: 0, 1: 1}, events, FACTS), 2)
    assert counts.below("early") == {"event_record": 1}


def test_numbers_are_affine_in_the_batch():
    affine = merge([step(10**9, 1000, 4), step(2 * 10**9, 2000, 6)])
    at_ten = affine.at(10)
    assert at_ten.batch == 10
    assert at_ten.numbers["work/1/forward/flops/matmul"] == pytest.approx(4 * 10**9)
    assert at_ten.numbers["sent/input/host/1/bytes"] == pytest.approx(4000)
    assert at_ten.numbers["sent/weights/0/1/bytes"] == 800
    assert AffineCounts.parse(affine.text()).at(10) == at_ten


def test_a_third_batch_names_what_is_not_on_the_line():
    line = merge([step(10**9, 1000, 4), step(2 * 10**9, 2000, 5), step(3 * 10**9, 3000, 6)])
    bent = merge([step(10**9, 1000, 4), step(10**9, 2000, 5), step(3 * 10**9, 3000, 6)])
    assert line.not_affine == ()
    assert bent.not_affine == ("work/0/forward/flops/matmul", "work/1/forward/flops/matmul")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"first": 1, "last": 2, "not_affine": []}'])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="validation error"):
        AffineCounts.parse(text)


def test_a_recording_without_its_model_is_refused():
    with pytest.raises(ValueError, match="facts about its model"):
        count_step(Recording(1, {0: 0}, [Mark(id=0, name="forward")]), 1)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten.convolution_backward.default", Kind.CONVOLUTION),
        ("aten.bmm.default", Kind.BATCHED_MATMUL),
        ("aten.addmm.default", Kind.MATMUL),
        ("aten.native_batch_norm.default", Kind.NORM),
        ("aten._softmax.default", Kind.SOFTMAX),
        ("aten.embedding.default", Kind.INDEX),
        ("aten.cat.default", Kind.MOVE),
        ("aten.max_pool2d_with_indices.default", Kind.REDUCTION),
        ("aten.relu.default", Kind.ELEMENTWISE),
    ],
)
def test_operators_have_a_kind(name, kind):
    assert kind_of(name) is kind
