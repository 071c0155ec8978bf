"""From events to tasks: threads, streams, waits, the optimizer."""

from dataclasses import replace

import pytest

from dpbench.cases.variants import VariantId
from dpbench.projection.collectives import bytes_by_link, with_collectives
from dpbench.projection.replay.build import Facts, build
from dpbench.projection.replay.events import Collective
from dpbench.projection.replay.fifo import schedule
from dpbench.projection.replay.tasks import LOCK, Role
from dpbench.projection.rules import ProjectionError, rule_of
from dpbench.records.recording import HostCall, HostCallName, HostWait, Mark, Operator, Wait
from tests.projection.small_machine import copy, machine, operator, recording

FACTS = Facts(modules=3, parameters=5)


def by_name(tasks, name):
    return [task for task in tasks.all if task.name == name]


def test_an_operator_is_issued_then_run():
    made = build(recording(operator(1), operator(2)).events, machine(), FACTS)
    roles = [task.role for task in made.all]
    assert roles == [Role.HOST, Role.HOST, Role.COMPUTE, Role.HOST, Role.COMPUTE]
    assert made.all[4].before == (3, 2) or set(made.all[4].before) == {2, 3}
    assert made.all[2].cost == {("flop", "matmul"): 10**9, ("byte", "matmul"): 2 * 10**6, ("gap",): 1}


def test_calls_without_a_kernel_go_to_the_next_task():
    view = operator(1, is_launched=False)
    call = HostCall(id=2, name=HostCallName.STREAM_WAIT)
    made = build(recording(view, call, operator(3)).events, machine(), FACTS)
    assert made.all[1].cost == {
        ("host", "view"): 1,
        ("host", "stream_wait"): 1,
        ("host", "forward_python"): 1,
        ("host", "forward_native"): 1,
    }


def test_streams_wait_only_where_the_recording_waits():
    free = recording(operator(1, 0), operator(2, 1))
    waiting = recording(operator(1, 0), Wait(id=2, stream=1, after=(1,)), operator(3, 1))
    assert build(free.events, machine(), FACTS).all[4].before == (3,)
    assert set(build(waiting.events, machine(), FACTS).all[4].before) == {2, 3}


def test_the_host_waits_for_a_device():
    r = recording(operator(1), HostWait(id=2, after=(1,)), operator(3))
    made = build(r.events, machine(), FACTS)
    assert 2 in made.all[3].before


def small(number, device=0, **more):
    """Return an operator that is no lane's: without FLOPs."""
    return operator(number, device, name="aten.cat.default", flops=0, **more)


def on_thread(tasks, number):
    return [i for i, task in enumerate(tasks.all) if task.resources[0] == f"thread {number}"]


def test_lanes_on_threads_hold_the_lock_for_their_python_part_alone():
    r = recording(small(1), operator(2, 0, thread=1), operator(3, 1, thread=2), small(4))
    made = build(r.events, machine(), FACTS)
    locked = [i for i, task in enumerate(made.all) if LOCK in task.resources]
    assert [made.all[i].resources[0] for i in locked] == ["thread 1", "thread 2"]
    assert all(("host", "forward_native") not in made.all[i].cost for i in locked)
    after = next(i for i in on_thread(made, 0) if i > locked[-1])
    assert {on_thread(made, 1)[-1], on_thread(made, 2)[-1]} <= set(made.all[after].before)


@pytest.mark.parametrize("order", [(2, 3, 4, 5), (2, 4, 3, 5), (4, 5, 2, 3)])
def test_a_lane_of_the_main_thread_runs_beside_the_others_whatever_order_was_recorded(order):
    lanes = {number: operator(number, number // 4, thread=number // 4) for number in (2, 3, 4, 5)}
    events = [small(1), *(replace(lanes[n], id=i) for i, n in enumerate(order, 2)), copy(6, 1, 0, 100, 1)]
    made = build(recording(*events).events, machine(), FACTS)
    locked = [task.resources[0] for task in made.all if LOCK in task.resources]
    assert sorted(locked) == ["thread 0", "thread 0", "thread 1", "thread 1"]
    begin = next(i for i, task in enumerate(made.all) if task.name == "aten.cat.default" and task.role is Role.HOST)
    assert made.all[on_thread(made, 1)[0]].before == (begin,)
    gather = next(i for i, task in enumerate(made.all) if task.name == "copy 1 to 0" and task.role is Role.HOST)
    assert on_thread(made, 1)[-1] in made.all[gather].before


def test_interleaved_lanes_run_one_at_a_time_in_the_recorded_order():
    lanes = [operator(2), operator(3, 1, thread=2), operator(4), operator(5, 1, thread=2)]
    r = recording(small(1), *lanes, copy(6, 1, 0, 100, 1))
    (variant,) = (VariantId("tuned[dispatch=interleaved]"),)
    _, events = rule_of(variant).change(r)
    made = build(events, machine(), FACTS)
    assert {task.resources for task in made.all if task.role is Role.HOST} == {("thread 0",)}
    passes = [task.cost.get(("host", "lock_handover"), 0) for task in made.all if task.role is Role.HOST]
    assert passes == [0, 0, 0, 2, 2, 2, 2]  # the step, cat, lane 0, and a pass before each turn and the gather
    assert sum(task.cost.get(("host", "forward_native"), 0) for task in made.all) == 5


def test_the_engine_has_a_thread_for_each_device():
    r = recording(operator(1, 0, thread=3), operator(2, 1, thread=4, inputs=(1,)), phase="backward")
    r.events.append(Mark(id=9, name="optimiser"))
    made = build(r.events, machine(), FACTS)
    threads = {task.resources[0] for task in made.all if task.role is Role.HOST}
    assert threads == {"thread 0", "thread 3", "thread 4"}
    issues = [i for i, task in enumerate(made.all) if task.name == "aten.mm.default" and task.role is Role.HOST]
    assert issues[0] in made.all[issues[1]].before  # a node is issued after the nodes whose results it reads
    assert set(issues) <= set(made.all[-1].before)  # the main thread goes on when all have ended


def test_the_optimizer_has_one_kernel_for_many_parameters():
    r = recording(
        operator(1, name="aten.add_.Tensor", flops=0), operator(2, name="aten.add_.Tensor", flops=0), phase="optimiser"
    )
    together = build(r.events, machine(), FACTS)
    apart = build(r.events, machine(), Facts(3, 5, has_foreach=False))
    assert [sum(task.role is Role.COMPUTE for task in made.all) for made in (together, apart)] == [1, 2]
    kernel = next(task for task in together.all if task.role is Role.COMPUTE)
    assert kernel.cost == {("byte", "elementwise"): 4 * 10**6, ("gap",): 1}


def test_replicas_are_made_before_the_first_lane_computes():
    r = recording(small(1), operator(2, 0, thread=1), operator(3, 1, thread=2))
    made = build(r.events, machine(), Facts(3, 5, replicas=2))
    (task,) = by_name(made, "replicate")
    assert task.cost["host", "replicate_module"] == 6


def test_several_steps_follow_each_other():
    r = recording(operator(1), operator(2, 1))
    one, three = build(r.events, machine(), FACTS), build(r.events, machine(), FACTS, steps=3)
    assert len(three) == 3 * len(one)
    assert three.step_ends == [len(one), 2 * len(one), 3 * len(one)]


def star(outward: bool = True):
    """Return the events by which the stock wrapper sends 100 bytes to, or from, three lanes."""
    for lane in (1, 2, 3):
        number = 10 * lane
        if outward:
            yield copy(number, 0, lane, 100, stream=0)
            yield Wait(id=number + 1, stream=lane, after=(number,))
        else:
            yield copy(number, lane, 0, 100, stream=lane, node="BroadcastBackward")
            yield Wait(id=number + 1, stream=0, after=(number,))
            yield operator(number + 2, 0, name="aten.add_.Tensor", flops=0, node="BroadcastBackward")


@pytest.mark.parametrize("outward", [True, False])
def test_copies_of_equal_size_become_one_collective(outward):
    phase = "forward" if outward else "backward"
    r = recording(operator(1), *star(outward), operator(99, 0), devices=4, phase=phase)
    events = with_collectives(r)
    (one,) = [event for event in events if isinstance(event, Collective)]
    assert (one.name, one.size_bytes, one.streams) == ("broadcast" if outward else "reduce", 100, (0, 1, 2, 3))
    names = [event.name for event in events if isinstance(event, Operator)]
    assert names == ["aten.mm.default", "aten.mm.default"]
    made = build(events, machine(4), FACTS)
    last = made.all[-1]
    assert next(i for i, task in enumerate(made.all) if task.role is Role.LINK) in last.before


@pytest.mark.parametrize(
    ("outward", "hops"),
    [
        (True, ["sim:0->sim:1", "sim:1->sim:2", "sim:2->sim:3"]),
        (False, ["sim:1->sim:0", "sim:2->sim:1", "sim:3->sim:2"]),
    ],
)
def test_a_collective_loads_each_hop_of_its_ring_once(outward, hops):
    r = recording(*star(outward), copy(90, 0, 3, 7, stream=0), copy(91, None, 3, 5, stream=3), devices=4)
    assert bytes_by_link(r) == {**dict.fromkeys(hops, 100), "sim:0->sim:3": 7}


def test_other_copies_stay():
    scattered = [copy(10 * i, None, i, 100, stream=i) for i in range(4)]
    uneven = [copy(1, 0, 1, 100, 0), copy(2, 0, 2, 101, 0), copy(3, 0, 3, 100, 0)]
    gathered = [copy(10 * i + 5, i, 0, 100, stream=i) for i in (1, 2, 3)]
    for events in (scattered, uneven, gathered):
        r = recording(*events, devices=4)
        assert with_collectives(r) == r.events


def test_everything_that_was_recorded_runs():
    r = recording(operator(1), *star(), operator(99, 3), devices=4)
    made = build(with_collectives(r), machine(4), FACTS)
    assert len(schedule(made, [1.0] * len(made)).order) == len(made)


@pytest.mark.parametrize("variant", ["tuned[route=nccl]", "tuned[route=tree]", "tuned[accumulate=2]"])
def test_route_nccl_and_accumulation_have_no_rule(variant):
    """The simulator has no NCCL, and 2 or 3 recorded items a lane are too few for many micro-batches."""
    with pytest.raises(ProjectionError, match=r"no rule for a projection; allowed: .*but for route nccl"):
        rule_of(VariantId(variant))
