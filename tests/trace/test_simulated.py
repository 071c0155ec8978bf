"""The order of a recording by hand: one unit for each operator and copy."""

from dpbench.records.recording import HostWait, Mark, Recording, Wait
from dpbench.trace.simulated import moved_by, simulated_timeline, staged_from
from dpbench.trace.timeline import Doing, Moved
from tests.projection.small_machine import copy, operator, recording


def starts(run):
    return [(span.name.removeprefix("aten.").partition(".")[0], span.start) for span in simulated_timeline(run).spans]


def test_streams_run_side_by_side_and_each_in_order():
    run = recording(operator(1, device=0), operator(2, device=0), operator(3, device=1))
    assert starts(run) == [("mm", 0), ("mm", 1), ("mm", 0)]


def test_a_stream_waits_for_what_it_names_and_for_nothing_else():
    run = recording(
        operator(1, device=1), operator(2, device=1), Wait(id=3, stream=3, after=(2,)), copy(4, 1, 0, 8, 3),
        operator(5), Wait(id=6, stream=0, after=(4,)), operator(7),
        phase="backward",
    )  # fmt: skip
    assert starts(run) == [("mm", 0), ("mm", 1), ("copy 1 to 0", 2), ("mm", 0), ("mm", 3)]
    timeline = simulated_timeline(run)
    assert timeline.path == [0, 1, 2, 4]
    sent = timeline.spans[2]
    assert (sent.doing, sent.moved, sent.lane, sent.device) == (Doing.MOVE, Moved.GRADIENTS, 1, None)
    assert sent.row == ("device 1", "stream 2")


def test_what_the_host_issues_after_a_wait_is_after_what_it_waited_for():
    run = recording(
        operator(1), operator(2), HostWait(id=3, after=(2,)), operator(4, device=1),
        Mark(id=5, name="backward"), operator(6, device=1, stream=3),
    )  # fmt: skip
    assert starts(run) == [("mm", 0), ("mm", 1), ("mm", 2), ("mm", 2)]
    assert simulated_timeline(run).spans[-1].phase == "backward"


def test_views_take_no_unit_and_a_silent_device_is_idle():
    run = recording(operator(1), operator(2, name="aten.view.default", is_launched=False))
    timeline = simulated_timeline(run)
    assert (timeline.length, list(timeline.devices)) == (1, ["device 0", "device 1"])


def test_an_empty_recording_has_no_length():
    assert simulated_timeline(Recording(1)).length == 0


def test_what_a_copy_carries():
    assert moved_by("forward", None, 2) == (Moved.INPUTS, 2)
    assert moved_by("forward", 0, 3) == moved_by("forward", 1, 3) == (Moved.PARAMETERS, 3)
    assert moved_by("forward", 3, 0) == (Moved.OUTPUTS, 3)
    assert moved_by("backward", 0, 3) == (Moved.OUTPUT_GRADIENTS, 3)
    assert moved_by("backward", 3, 0) == moved_by("backward", 3, 2) == (Moved.GRADIENTS, 3)


def test_what_a_copy_by_way_of_the_host_carries():
    assert moved_by("forward", 0, None) == (Moved.PARAMETERS, None)
    assert moved_by("forward", None, 3, staged_from(["copy 0 to host", "aten.add"])) == (Moved.PARAMETERS, 3)
    assert moved_by("forward", 3, None) == (Moved.OUTPUTS, 3)
    assert moved_by("backward", 3, None) == (Moved.GRADIENTS, 3)
    assert moved_by("backward", None, 2, staged_from(["copy 2 to host", "copy 3 to host"])) == (Moved.GRADIENTS, 3)
    assert moved_by("forward", None, 0, staged_from(["copy 0 to host"])) == (Moved.INPUTS, 0)
    assert staged_from(["copy host to 0", "copy 1 to 0"]) is None
