"""Profiles made by hand, as torch.profiler exports them: of CPU lanes, and of CUDA streams."""

import pytest

from dpbench.trace.critical import idle_shares, path_in_words
from dpbench.trace.recorded import recorded_trace, shortest_step
from dpbench.trace.timeline import Doing, Moved, Source, Trace, perfetto
from tests.trace.trace_events import faults

T = 4.6e12
"""Kineto's times are microseconds since the boot of the machine."""


def event(category, name, start, length, thread=70, **args):
    times = {"ts": T + start, "dur": length}
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": thread, **times, "args": args}


def mark(name, start, length):
    return event("user_annotation", f"dpbench: {name}", start, length)


def traced(*events, nodes=(), length=1000):
    content = {"traceEvents": [{"ph": "M", "name": "x", "pid": 7}, *events, mark("step", 0, length)]}
    return recorded_trace("naive", content, (5e-4, 4e-4, 9e-4), nodes)


def shown(seconds):
    return f"{seconds * 1e6:.0f} us"


LANES = (
    event("cpu_op", "aten::outside", -100, 50),
    mark("forward", 0, 500),
    mark("replicate", 0, 100),
    event("cpu_op", "Broadcast", 0, 100),
    event("cpu_op", "aten::copy_", 10, 50),
    event("cpu_op", "aten::linear", 120, 300, thread=71),
    event("cpu_op", "aten::addmm", 130, 280, thread=71),
    event("cpu_op", "aten::linear", 120, 200, thread=72),
    mark("backward", 500, 400),
    event("cpu_op", "aten::sum", 460, 40),
    event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 505, 195),
    event("cpu_op", "autograd::engine::evaluate_function: BroadcastBackward", 710, 190),
    mark("optimiser", 900, 100),
    event("cpu_op", "aten::add_", 905, 90),
    {"ph": "i", "name": "Record Window End", "ts": T},
)


def test_outermost_operators_of_each_thread_are_drawn():
    timeline = traced(*LANES, nodes=("BroadcastBackward",)).timeline
    names = {span.row.group for span in timeline.spans}
    assert list(timeline.devices) == ["main thread", "thread 1", "thread 2"]
    assert names == set(timeline.devices)
    assert [(span.name, span.doing, span.phase) for span in timeline.spans] == [
        ("Broadcast", Doing.MOVE, "forward"),
        ("aten::linear", Doing.COMPUTE, "forward"),
        ("aten::linear", Doing.COMPUTE, "forward"),
        ("aten::sum", Doing.COMPUTE, "forward"),
        ("AddmmBackward0", Doing.COMPUTE, "backward"),
        ("BroadcastBackward", Doing.MOVE, "backward"),
        ("aten::add_", Doing.COMPUTE, "optimiser"),
    ]
    assert [span.moved for span in timeline.spans if span.moved] == [Moved.PARAMETERS, Moved.GRADIENTS]
    assert idle_shares(timeline)["thread 1"] == pytest.approx(1 - 300 / 995)


def test_after_a_gap_the_main_thread_waited_for_the_lane_that_ended_last():
    timeline = traced(*LANES, nodes=("BroadcastBackward",)).timeline
    assert [timeline.spans[i].name for i in timeline.path][:3] == ["Broadcast", "aten::linear", "aten::sum"]
    words = path_in_words(timeline, shown)
    assert words[:2] == [
        "main thread moves the parameters for 100 us (10%) in the forward",
        "no operator runs for 60 us (6%) in the forward",
    ]
    assert "thread 1 computes 300 us (30%) in the forward" in words
    assert "main thread moves the gradients for 190 us (19%) in the backward" in words


def test_the_step_time_is_that_without_a_profiler():
    trace = traced(*LANES)
    assert trace.step_s == 5e-4
    assert trace.notes[0] == "the profiled step took 2.0 times as long as a step without a profiler"
    assert faults(perfetto(Trace(Source.RECORDED, "t", [trace]))) == []


def test_a_profiled_step_that_was_shorter_is_not_said_to_be_slowed():
    trace = traced(*LANES, length=300)
    assert trace.notes[0] == (
        "the profiled step took 0.6 times as long as a step without a profiler, because steps here differ by more than "
        "the profiler costs"
    )


CUDA = (
    mark("forward", 0, 400),
    event("cpu_op", "aten::mm", 10, 20),
    event("cuda_runtime", "cudaLaunchKernel", 15, 10, correlation=1),
    event("kernel", "gemm", 18, 200, thread=7, device=0, stream=7, correlation=1),
    event("cpu_op", "aten::relu", 40, 20),
    event("cuda_runtime", "cudaLaunchKernel", 45, 10, correlation=2),
    event("kernel", "relu", 218, 50, thread=7, device=0, stream=7, correlation=2),
    mark("backward", 400, 500),
    event("cpu_op", "aten::copy_", 410, 20, thread=71),
    event("cuda_runtime", "cudaMemcpyAsync", 412, 10, thread=71, correlation=3),
    event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 500, 300, thread=9, device=1, stream=9, correlation=3),
    event("cpu_op", "aten::add_", 440, 20),
    event("cuda_runtime", "cudaLaunchKernel", 445, 10, correlation=4),
    event("kernel", "add", 800, 50, thread=7, device=0, stream=7, correlation=4),
    event("kernel", "ncclDevKernel_Broadcast_RING_LL", 860, 9, thread=9, device=1, stream=9),
)


def test_kernels_are_on_their_streams_and_threads_only_issue():
    timeline = traced(*CUDA).timeline
    rows = {span.name: span.row for span in timeline.spans}
    assert list(timeline.devices) == ["cuda:0", "cuda:1"]
    assert (rows["gemm"].group, rows["gemm"].name) == ("cuda:0", "stream 7")
    assert (rows["aten::copy_"].group, rows["aten::copy_"].name) == ("host", "thread 1")
    assert {span.name for span in timeline.spans if span.doing is Doing.HOST} == {
        *("aten::mm", "aten::relu", "aten::copy_", "aten::add_"),
    }
    moved = {span.name: span.moved for span in timeline.spans if span.doing is Doing.MOVE}
    assert list(moved.values()) == [Moved.GRADIENTS, Moved.PARAMETERS]
    assert faults(perfetto(Trace(Source.RECORDED, "t", [traced(*CUDA)]))) == []


def copied(name, start, stream):
    return event("gpu_memcpy", f"Memcpy {name}", start, 10, thread=stream, device=0, stream=stream)


def test_a_copy_from_the_host_is_of_inputs_unless_devices_send_to_each_other_by_way_of_it():
    phases = mark("forward", 0, 400), mark("backward", 400, 500)
    first, later = copied("HtoD (Pinned -> Device)", 10, 1), copied("HtoD (Pinned -> Device)", 500, 2)
    plain = traced(*phases, first).timeline
    assert [span.moved for span in plain.spans] == [Moved.INPUTS]
    staged = traced(*phases, copied("DtoH (Device -> Pinned)", 5, 3), first, later).timeline
    assert [span.moved for span in staged.spans] == [Moved.BYTES, Moved.BYTES, Moved.GRADIENTS]


def test_a_kernel_waits_for_its_launch_its_stream_or_what_ended_last():
    timeline = traced(*CUDA).timeline
    before = {span.name: [timeline.spans[i].name for i in span.before] for span in timeline.spans}
    assert before["gemm"] == ["aten::mm"]
    assert before["relu"] == ["gemm"]
    assert before["add"] == ["Memcpy PtoP (Device -> Device)"]


def test_a_queued_kernel_waits_for_the_one_before_it_although_its_launch_is_recent():
    queued = traced(
        event("cpu_op", "aten::mm", 10, 20),
        event("cuda_runtime", "cudaLaunchKernel", 12, 2, correlation=1),
        event("kernel", "one", 15, 25, thread=7, device=0, stream=7, correlation=1),
        event("cpu_op", "aten::relu", 31, 20),
        event("cuda_runtime", "cudaLaunchKernel", 33, 2, correlation=2),
        event("kernel", "two", 40, 5, thread=7, device=0, stream=7, correlation=2),
    ).timeline
    assert [queued.spans[i].name for i in queued.path] == ["aten::mm", "aten::relu"]
    two = next(span for span in queued.spans if span.name == "two")
    assert [queued.spans[i].name for i in two.before] == ["one"]


def test_marks_of_the_users_are_no_phases():
    own = event("user_annotation", "optimiser", 0, 400)
    assert [span.phase for span in traced(own, event("cpu_op", "aten::mm", 10, 5)).timeline.spans] == ["forward"]


def test_a_profile_without_a_marked_step_is_refused():
    with pytest.raises(ValueError, match="no marked step"):
        shortest_step({"traceEvents": [event("cpu_op", "aten::mm", 0, 1)]})


def test_the_shortest_of_several_marked_steps_is_taken():
    steps = [mark("step", 2000 * number, length) for number, length in enumerate((900, 300, 600))]
    inside = [event("cpu_op", f"aten::op{number}", 2000 * number + 10, 5) for number in range(3)]
    step, events = shortest_step({"traceEvents": [*steps, *inside]})
    assert (step, events) == (steps[1], [inside[1]])
    (span,) = recorded_trace("naive", {"traceEvents": [*steps, *inside]}, (1.0,)).timeline.spans
    assert span.start == pytest.approx(10e-6, abs=1e-9)
