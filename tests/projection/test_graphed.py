"""A graphed step: its host calls against those counted on the stand-in for CUDA, its order, and what it refuses."""

from functools import cache

import pytest

from dpbench.cases.variants import VariantId
from dpbench.errors import WrongInputError
from dpbench.processes.record_step import record_step
from dpbench.projection.graphed import graphed_events
from dpbench.projection.replay.build import Facts, build
from dpbench.projection.replay.events import MAIN, GraphLaunch
from dpbench.projection.replay.tasks import LOCK, Role
from dpbench.projection.rules import ProjectionError, rule_of
from dpbench.records.recording import HostCall, HostCallName, Mark, Operator, Recording, Wait
from tests.projection.graph_calls import calls_of
from tests.projection.small_machine import copy, machine, operator
from tests.simulated import needs_simulator

GRAPHS = "tuned[graphs=true,route=star]"
DETACHED = operator(5, 1, "aten.detach.default", is_launched=False)
READS = HostCall(id=90, name=HostCallName.HANDLE_LOOKUP)
WAITS = [HostCall(id=91, name=HostCallName.HANDLE_LOOKUP), HostCall(id=92, name=HostCallName.STREAM_LOOKUP)]
RECORDED = HostCall(id=99, name=HostCallName.EVENT_RECORD, thread=4)
CLONE = ["record_stream"]
PACK = {"name": "aten._foreach_copy_.default", "node": "LaneNodeBackward", "flops": 0}
ADD = {"name": "aten.add_.Tensor", "node": "SumNodeBackward", "stream": 2, "thread": 3}
FORWARD = [
    Mark(id=0, name="forward"),
    copy(1, None, 0, 100, 2),
    copy(2, None, 1, 100, 3),
    copy(3, 0, 1, 100, 3),
    copy(4, 0, 1, 100, 3),
    DETACHED,
    operator(5, 0, "aten.empty.memory_format", stream=2, is_launched=False),
    operator(6, 0),
    Wait(id=7, stream=1, after=(3,)),
    operator(8, 1),
    READS,
    *WAITS,
    Wait(id=9, stream=1, after=(4,)),
    operator(10, 1),
    copy(11, 1, 0, 10, 1),
]
BACKWARD = [
    Mark(id=20, name="backward"),
    copy(21, 0, 1, 10, 0, node="JoinBackward", thread=3),
    operator(22, 1, thread=4),
    operator(23, 1, thread=4, **PACK),
    RECORDED,
    operator(24, 1, thread=4),
    operator(25, 0, thread=3, **PACK),
    Wait(id=26, stream=2, after=(23, 25)),
    operator(27, 0, **ADD),
    operator(28, 0, thread=3),
    Mark(id=30, name="optimiser"),
]


@cache
def recorded(workload, lanes):
    return record_step(workload, GRAPHS, lanes).at(8 * lanes)


def graphed(events):
    return graphed_events(Recording(2, {0: 0, 1: 1, 2: 0, 3: 1}, events))[1]


@needs_simulator
def test_the_calls_are_those_counted_on_the_stand_in():
    eager = recorded("mlp/small", 8)
    _, events = graphed_events(eager)
    launches = [event for event in events if isinstance(event, GraphLaunch)]
    # results/graphs.md; all but the works and the launches are calls of dpbench.parallel
    counted = {"works": 69, "graph_launches": 16, "programs_events": 39, "programs_waits": 52, "record_streams": 23}
    assert calls_of(events) == counted
    # The copies of inputs and gradients into static memory and the clone are new.
    assert sum(isinstance(node, Operator) for launch in launches for node in launch.nodes) == calls_of(eager.events)[
        "works"
    ] - (69 - 17)


def test_a_lane_waits_where_it_reads_weights_and_a_sum_for_its_pack_alone():
    events = graphed(FORWARD + BACKWARD)
    launches = [i for i, event in enumerate(events) if isinstance(event, GraphLaunch)]
    assert [[node.id for node in events[i].nodes] for i in launches] == [[6], [8, 9, 10], [22, 23, 24], [25, 28]]
    assert not any(event in events for event in (DETACHED, RECORDED, READS, *WAITS))
    assert [event.name.value for event in events if isinstance(event, HostCall) and event.thread == 3] == CLONE
    tasks = build(events, machine(), Facts(modules=1, parameters=1)).all
    sent = [i for i, task in enumerate(tasks) if task.name == "copy 0 to 1" and task.role is Role.LINK]
    products = [task for task in tasks if task.name == "aten.mm.default" and task.device == 1]
    assert [sent[1] in product.before for product in products[:2]] == [False, True]
    packs = [i for i, task in enumerate(tasks) if task.name == PACK["name"] and task.device == 1]
    last = max(i for i, task in enumerate(tasks) if task.device == 1)
    add = next(task for task in tasks if task.name == ADD["name"] and task.role is Role.COMPUTE)
    clone = next(i for i, task in enumerate(tasks) if task.name == "aten.clone.default" and task.role is Role.COMPUTE)
    assert {packs[-1], clone} <= set(add.before)
    assert last not in add.before


def test_a_sum_does_not_wait_for_the_copy_of_a_later_bucket():
    later = [operator(40, 0, thread=3, **PACK), Wait(id=41, stream=2, after=(40,)), operator(42, 0, **ADD)]
    events = graphed(FORWARD + BACKWARD[:-1] + later + BACKWARD[-1:])
    on_hub = [event.name for event in events if isinstance(event, Operator) and event.stream == 2 and event.is_launched]
    assert on_hub == ["aten.clone.default", ADD["name"]] * 2


def test_a_launch_costs_the_host_once_and_its_python_holds_the_lock():
    tasks = build(graphed(FORWARD + BACKWARD), machine(), Facts(modules=1, parameters=1)).all
    costs = [task.cost for task in tasks if ("host", "graph_launch") in task.cost]
    assert [cost["host", "graph_node"] for cost in costs] == [1, 3, 3, 2]
    assert [task.phase for task in tasks if LOCK in task.resources] == ["forward"] * 2 + ["backward"] * 2
    assert not any(("host", "backward") in task.cost and task.name == "aten.mm.default" for task in tasks)
    assert {task.role for task in tasks if task.name == "aten.mm.default"} == {Role.COMPUTE}


def test_a_step_on_one_device_and_a_step_without_weights_to_send():
    one = Recording(1, {0: 0}, FORWARD)
    assert graphed_events(one)[1] == FORWARD
    assert any(isinstance(event, GraphLaunch) for event in graphed(FORWARD[:3] + FORWARD[7:] + BACKWARD))


@needs_simulator
def test_other_dispatches_are_recorded_in_sequence():
    events = record_step("mlp/tiny", "tuned[dispatch=threads,graphs=true]", 2).first.events
    begin = next(i for i, event in enumerate(events) if isinstance(event, Mark) and event.name == "backward")
    assert {getattr(event, "thread", MAIN) for event in events[:begin]} == {MAIN}


@pytest.mark.parametrize(
    ("variant", "is_refused"),
    [
        ("tuned[graphs=true]", False),
        ("tuned[dispatch=threads,graphs=true]", False),
        ("tuned[dispatch=interleaved,graphs=true]", False),
        ("tuned[accumulate=2,graphs=true]", True),
        ("tuned[graphs=true,route=nccl]", True),
        ("tuned[cache_replicas=false,graphs=true]", True),
        ("tuned[graphs=true,loss=replicas]", False),
    ],
)
def test_other_options_together_with_graphs(variant, is_refused):
    if is_refused:
        with pytest.raises(ProjectionError, match=r"variants: .*graphs.*; allowed: "):
            rule_of(VariantId(variant))
    else:
        assert rule_of(VariantId(variant)).change is graphed_events


@pytest.mark.parametrize("event", [copy(12, None, 1, 10, 1), operator(12, 1, "aten._indices.default")])
def test_what_no_graph_does_is_refused(event):
    with pytest.raises(WrongInputError, match=r"variants: graphs=true: .*; allowed: graphs=false"):
        graphed([*FORWARD[:-2], event, *FORWARD[-2:], *BACKWARD])
