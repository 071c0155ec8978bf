"""A projection as a timeline: the same tasks, times and step time."""

import pytest

from dpbench.cases.variants import VariantId
from dpbench.processes import project_all
from dpbench.projection.described.machine_file import load_machine
from dpbench.projection.replay.tasks import Role
from dpbench.trace.critical import idle_shares, overlapped_share, parts_of_path
from dpbench.trace.perfetto import perfetto
from dpbench.trace.projected import moved_by, moved_by_collective, projected_trace, staged_from, thread_name
from dpbench.trace.timeline import LINK_GROUP, Doing, Moved, Source, Trace
from tests.trace.recorded_steps import recorded
from tests.trace.trace_events import faults

VARIANTS = [VariantId(name) for name in ("single", "torch_dp", "ddp")]


@pytest.fixture(scope="module")
def projections():
    machine = load_machine("4xT4-pcie")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(project_all, "record_step", recorded)
        steps = project_all.record_all("convnet/base", VARIANTS, [machine])
    found = project_all.project_machine(machine, steps, "convnet/base", VARIANTS)
    return {str(row.variant): row.projection for row in found.rows}


def test_the_step_time_and_the_hidden_share_are_those_of_the_projection(projections):
    for name, projection in projections.items():
        trace = projected_trace(name, projection)
        assert trace.step_s == projection.step_time_s.mid
        assert trace.hidden == projection.hidden
        assert trace.timeline.length == max(projection.schedule.finishes)
        if projection.devices == 1:
            assert trace.step_s == pytest.approx(trace.timeline.length)


def test_a_longer_step_than_the_drawing_is_said(projections):
    notes = {name: projected_trace(name, projection).notes for name, projection in projections.items()}
    assert notes["single"] == ()
    assert [note.partition(" ")[2][:30] for note in notes["torch_dp"]] == ["step is 4.0% longer than the d"]
    assert "one rank is drawn, and stands for all 4" in notes["ddp"]


def test_every_task_is_on_its_rows_and_rows_do_not_overlap(projections):
    for name, projection in projections.items():
        timeline = projected_trace(name, projection).timeline
        assert len(timeline.spans) == len(projection.tasks)
        for span, task in zip(timeline.spans, projection.tasks.all, strict=True):
            links = [row for row in span.rows if timeline.rows[row].group == LINK_GROUP]
            assert len(links) == (len(task.resources) if task.role is Role.LINK else 0)
            assert len(span.rows) - len(links) == (len(task.streams) or 1)
        assert faults(perfetto(Trace(Source.PROJECTED, "t", [projected_trace(name, projection)]))) == []


def test_the_path_is_the_projections_and_adds_up(projections):
    for name, projection in projections.items():
        timeline = projected_trace(name, projection).timeline
        parts = parts_of_path(timeline)
        assert sum(part.length for part in parts) == pytest.approx(timeline.length)
        host = sum(part.share for part in parts if part.doing is Doing.HOST)
        assert host == pytest.approx(dict(projection.bound_by).get("host", 0))


def test_the_stock_wrapper_sends_parameters_before_and_gradients_after_it_computes(projections):
    timeline = projected_trace("torch_dp", projections["torch_dp"]).timeline
    assert list(idle_shares(timeline)) == [f"device {number}" for number in range(4)]
    assert all(0 < share < 1 for share in idle_shares(timeline).values())
    assert 0 <= overlapped_share(timeline) < 1
    moved = {(span.moved, span.lane) for span in timeline.spans if span.doing is Doing.MOVE}
    assert {(Moved.PARAMETERS, None), (Moved.GRADIENTS, None), (Moved.OUTPUTS, 3), (Moved.INPUTS, 2)} <= moved


def test_what_a_copy_carries():
    assert moved_by("forward", None, 2) == (Moved.INPUTS, 2)
    assert moved_by("forward", 0, 3) == moved_by("forward", 1, 3) == (Moved.PARAMETERS, 3)
    assert moved_by("forward", 3, 0) == (Moved.OUTPUTS, 3)
    assert moved_by("backward", 0, 3) == (Moved.OUTPUT_GRADIENTS, 3)
    assert moved_by("backward", 3, 0) == moved_by("backward", 3, 2) == (Moved.GRADIENTS, 3)
    assert [moved_by_collective(name) for name in ("broadcast", "reduce", "all_reduce", "send")] == [
        *(Moved.PARAMETERS, Moved.GRADIENTS, Moved.GRADIENTS, Moved.BYTES),
    ]


def test_what_a_copy_by_way_of_the_host_carries():
    assert moved_by("forward", 0, None) == (Moved.PARAMETERS, None)
    assert moved_by("forward", None, 3, staged_from(["copy 0 to host", "aten.add"])) == (Moved.PARAMETERS, 3)
    assert moved_by("forward", 3, None) == (Moved.OUTPUTS, 3)
    assert moved_by("backward", 3, None) == (Moved.GRADIENTS, 3)
    assert moved_by("backward", None, 2, staged_from(["copy 2 to host", "copy 3 to host"])) == (Moved.GRADIENTS, 3)
    assert moved_by("forward", None, 0, staged_from(["copy 0 to host"])) == (Moved.INPUTS, 0)
    assert staged_from(["copy host to 0", "copy 1 to 0"]) is None


def test_threads_have_names():
    names = [thread_name(number, 2) for number in range(5)]
    assert names == [
        "main thread",
        *("thread of lane 0", "thread of lane 1"),
        *("backward thread of device 0", "backward thread of device 1"),
    ]
