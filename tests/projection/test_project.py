"""A projection: every parameter has an effect, in the right direction."""

import re
from dataclasses import replace

import numpy as np
import pytest

from dpbench.cases.variants import VariantId
from dpbench.projection.collectives import with_collectives
from dpbench.projection.ddp import Buckets, bucket_ends, ddp_events
from dpbench.projection.described.machine import FLOP_KINDS, HostCost, Kind, Quantity
from dpbench.projection.described.machine_file import load_machine, machine_names
from dpbench.projection.model_error import EXACT, ModelError
from dpbench.projection.project import limited_by_loader, project
from dpbench.projection.ranking import advice, ratio_of, with_speed_up
from dpbench.projection.replay.build import Facts, build
from dpbench.projection.replay.draws import SAMPLE, draw
from dpbench.projection.replay.fifo import schedule
from dpbench.projection.replay.rates import Rates, formats_of, name_of
from dpbench.projection.replay.tasks import Role
from dpbench.records.recording import GradientReady, HostCall, HostCallName, Mark, ModelFacts, Recording, Wait
from tests.projection.small_machine import copy, operator

FASTER = (
    "device.float32",
    "device.tf32",
    "device.bandwidth",
    "flop_efficiency",
    "byte_efficiency",
    "bandwidth",
    "_share_",
)
NAMES = ("convolution", "bmm", "mm", "native_layer_norm", "_softmax", "relu", "sum", "embedding", "cat")


def everything() -> Recording:
    """Return a step that pays for every kind of operator, call and copy, on two devices and in two threads."""
    number = iter(range(1, 1000))
    events = [Mark(id=next(number), name="forward")]
    events += [HostCall(id=next(number), name=name) for name in HostCallName]
    events += [copy(next(number), None, i, 10**6, i) for i in (0, 1)]
    events += [sent := copy(next(number), 0, 1, 10**6, 0), Wait(id=next(number), stream=1, after=(sent.id,))]
    for _i in range(2):
        events += [
            operator(next(number), lane, f"aten.{name}.default", thread=1 + lane) for name in NAMES for lane in (0, 1)
        ]
    events += [operator(next(number), is_launched=False), operator(next(number))]
    events += [Mark(id=next(number), name="backward")]
    events += [
        operator(next(number), lane, "aten.relu.default", flops=0, thread=3 + lane) for lane in (0, 1) for _ in range(3)
    ]
    events += [
        back := copy(next(number), 1, 0, 10**6, 1, node="X", thread=4),
        Wait(id=next(number), stream=0, after=(back.id,)),
    ]
    events += [Mark(id=next(number), name="optimiser"), operator(next(number))]
    return Recording(
        2,
        {0: 0, 1: 1},
        events,
        ModelFacts(modules=9, parameters=9, buffers=0, parameter_bytes=9, buffer_bytes=0, parameter_sizes=(9,)),
    )


def stepped(machine, variant="tuned", math="default", error=EXACT):
    """Return the projection of the step with everything in it."""
    recorded = everything()
    if variant == "ddp":
        recorded = single_step()
        recorded, events = ddp_events(recorded)
    else:
        events = with_collectives(recorded) if variant == "torch_dp" else recorded.events
    tasks = build(events, machine, Facts(9, 9, replicas=1))
    return project(tasks, machine, draw(machine.parameters()), devices=2, batch=64, math=math, error=error)


def single_step() -> Recording:
    events = [Mark(id=1, name="forward"), operator(2), Mark(id=3, name="backward")]
    for i in range(4):
        at = 10 * i + 10
        events += [operator(at, thread=2), GradientReady(id=at + 1, parameter=i, size_bytes=10**7, device=0)]
    events += [Mark(id=90, name="optimiser"), operator(91)]
    facts = ModelFacts(
        modules=4, parameters=4, buffers=1, parameter_bytes=4 * 10**7, buffer_bytes=100, parameter_sizes=(10**7,) * 4
    )
    return Recording(1, {0: 0}, events, facts)


@pytest.fixture(scope="module")
def real():
    return load_machine("2xV100-pcie")


def all_rates(machine):
    """Return every rate that a step on this machine can need."""
    found = [("flop", kind) for kind in FLOP_KINDS] + [("byte", kind) for kind in Kind] + [("gap",)]
    found += [("host", cost) for cost in HostCost] + [("slowed", "flop", Kind.MATMUL)]
    for ends in machine.routes:
        found += [(what, *map(name_of, ends)) for what in ("route", "latency")]
    sizes = ("64", "4096", "100000", "1000000", "30000000", "1000000000")
    return found + [("collective", op, size) for op in ("broadcast", "reduce", "all_reduce") for size in sizes]


@pytest.mark.parametrize("name", machine_names())
def test_every_parameter_moves_a_rate_in_the_right_direction(name):
    machine = load_machine(name)
    parameters = {each: Quantity(q.mid / 20, q.mid, q.mid * 20, "a test") for each, q in machine.parameters().items()}
    draws, unmoved = draw(parameters), []
    for math in ("float32", "tf32"):
        table = Rates(machine, draws.values, formats_of(machine, math)).table(all_rates(machine))
        for parameter, (low, high) in draws.ends.items():
            sign = -1 if any(part in parameter for part in FASTER) else 1
            assert (sign * (table[:, high] - table[:, 0]) >= -1e-18).all(), parameter
            assert (sign * (table[:, low] - table[:, 0]) <= 1e-18).all(), parameter
            if not (table[:, high] != table[:, 0]).any() and not (table[:, low] != table[:, 0]).any():
                unmoved.append(parameter)
    still = {parameter for parameter in unmoved if unmoved.count(parameter) == 2}
    # NCCL takes the fastest algorithm: a constant of one that it never takes has no effect. `skew` multiplies the step.
    assert {each for each in still if not each.startswith("nccl.")} == {"skew"}


@pytest.mark.parametrize("variant", ["tuned", "torch_dp", "ddp"])
@pytest.mark.parametrize("name", ["2xV100-pcie", "2xTITAN-RTX-nvlink", "4xA100-nvswitch"])
def test_a_faster_machine_never_takes_longer(name, variant):
    for each in stepped(load_machine(name), variant).sensitivities:
        is_faster = any(part in each.parameter for part in FASTER)
        low, high = (each.high, each.low) if is_faster else (each.low, each.high)
        assert low <= 1 + 1e-9
        assert high >= 1 - 1e-9


def test_slower_ranks_make_a_longer_step(real):
    slower = replace(real, skew=Quantity(1.5, 2.0, 2.5, "a test"))
    assert stepped(slower).step_time_s.mid > stepped(real).step_time_s.mid


def test_draws_are_common_and_keep_their_bounds():
    first, second = (
        draw({"a": Quantity(1, 2, 8, "t")}),
        draw({"b": Quantity(1, 1, 1, "t"), "a": Quantity(1, 2, 8, "t")}),
    )
    assert np.array_equal(first.values["a"][first.sample], second.values["a"][second.sample])
    sample = first.values["a"][first.sample]
    assert sample.min() >= 1
    assert sample.max() <= 8
    assert len(sample) == SAMPLE
    assert np.mean(sample < 2) == pytest.approx(0.5, abs=0.01)
    assert second.ends.keys() == {"a"}


def test_buckets_close_when_they_are_full():
    ready = [GradientReady(id=i, parameter=i, size_bytes=size, device=0) for i, size in enumerate([6, 6, 9, 9, 9, 1])]
    assert bucket_ends(ready, Buckets(first_bytes=10, bucket_bytes=20)) == [1, 4, 5]


def test_ddp_sends_a_bucket_when_its_last_gradient_is_there(real):
    _, events = ddp_events(single_step())
    tasks = build(events, real, Facts(4, 4))
    sent = [i for i, task in enumerate(tasks.all) if task.name == "all_reduce" and task.role is Role.LINK]
    assert len(sent) == 2
    found = schedule(tasks, [1.0] * len(tasks))
    computed = [i for i, t in enumerate(tasks.all) if t.role is Role.COMPUTE and t.name == "aten.mm.default"]
    assert found.starts[sent[0]] < found.starts[computed[-2]]  # while the backward goes on
    last = tasks.all[computed[-1]]  # the optimizer waits for both
    assert min(found.starts[computed[-1]] - found.finishes[i] for i in sent) >= 0
    assert last.phase == "optimiser"


def test_ddp_operators_are_slower_beside_an_all_reduce(real):
    slower = replace(real, overlap=Quantity(1.5, 2.0, 2.5, "a test"))
    assert stepped(slower, "ddp").step_time_s.mid > stepped(real, "ddp").step_time_s.mid


def test_more_devices_never_change_nothing():
    names = ("4xA100-nvswitch", "8xA100-nvswitch")
    times = [stepped(load_machine(name), "ddp").step_time_s.mid for name in names]
    assert times[0] != times[1]


def test_what_is_free_saves_time_and_no_more_than_all(real):
    found = stepped(real)
    assert all(0 <= share <= 1 for share in found.saved.values())
    assert 0 <= found.hidden <= 1
    assert sum(share for _, share in found.bound_by) == pytest.approx(1)
    assert found.step_time_s.low <= found.step_time_s.mid <= found.step_time_s.high


def test_tf32_is_faster_where_the_device_has_it():
    a100, v100 = load_machine("4xA100-nvswitch"), load_machine("2xV100-pcie")
    assert stepped(a100, math="tf32").step_time_s.mid < stepped(a100, math="float32").step_time_s.mid
    assert stepped(v100, math="tf32").step_time_s.mid == stepped(v100, math="float32").step_time_s.mid


def test_a_loader_limits_the_step(real):
    found = stepped(real)
    slow = limited_by_loader(found, items_per_s=1.0)
    assert slow.step_time_s.mid == 64
    assert slow.bound_by == (("data loader", 1.0),)
    fast = limited_by_loader(found, items_per_s=1e12)
    assert (fast.step_time_s, fast.bound_by) == (found.step_time_s, found.bound_by)


def test_the_models_error_widens_times_and_ratios_and_not_the_mid_case(real):
    error = ModelError(step_time=1.4, ratio=1.1)
    plain, wide = stepped(real), stepped(real, error=error)
    one = replace(plain, devices=1)
    assert wide.step_time_s == plain.step_time_s.widened(1.4)
    assert np.array_equal(wide.sample_s, plain.sample_s)
    wide_one, slower = replace(wide, devices=1), replace(wide, sample_s=wide.sample_s * 2)
    assert ratio_of(wide_one, wide) == ratio_of(one, plain).widened(1.1)
    assert ratio_of(wide_one, wide_one) == ratio_of(one, one)  # nothing is unknown
    assert ratio_of(slower, wide).low == pytest.approx(2 / 1.1**2**0.5)


def test_the_advice_claims_an_order_only_where_it_is_sure(real):
    one = stepped(real)
    twin, slow = VariantId("tuned"), VariantId("naive")
    half = replace(one, step_time_s=replace(one.step_time_s, mid=one.step_time_s.mid * 2), sample_s=one.sample_s * 2)
    rows = with_speed_up({twin: one, slow: half}, one)
    assert "use tuned" in advice(rows, "M")
    assert "100% faster than naive" in advice(rows, "M")
    assert re.search(r"; its step would be shorter by \d+% with (links|a host) that costs? nothing", advice(rows, "M"))
    noisy = replace(one, sample_s=one.sample_s[::-1])
    assert "not decided between tuned and naive" in advice(with_speed_up({twin: one, slow: noisy}, one), "M")
    unsure = ModelError(step_time=3.0, ratio=2.0)
    unsure_rows = {twin: replace(one, model_error=unsure), slow: replace(half, model_error=unsure)}
    assert "not decided between tuned and naive" in advice(with_speed_up(unsure_rows, one), "M")
