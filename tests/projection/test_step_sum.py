"""The sum of a step, term by term, on a machine with round numbers."""

from dataclasses import replace

import pytest

from dpbench.cases.variants import VariantId
from dpbench.projection.machine import HostCost
from dpbench.projection.step_counts import StepCounts
from dpbench.projection.step_sum import MIB, Fitted, Part, Setting, sum_step
from dpbench.records.recording import ModelFacts
from tests.projection.small_machine import about, machine

SINGLE, STOCK, TUNED, DDP, NCCL = map(VariantId, ("single", "torch_dp", "tuned", "ddp", "tuned[route=nccl]"))
MODEL = ModelFacts(
    modules=10, parameters=4, buffers=1, parameter_bytes=4 * 10**7, buffer_bytes=10**6, parameter_sizes=(10**7,) * 4
)
WORK = {"work/0/forward/flops/matmul": 1e10, "work/0/backward/flops/matmul": 2e10, "work/0/optimiser/bytes/move": 1e9}
ONE = StepCounts(1, 4, WORK, MODEL, (10**7,) * 4)
"""10 ms of forward, 20 ms of backward, 1 ms of optimiser. A link carries 10 MB in 1 ms, with a latency of 1 us."""


def lanes(sent, devices=2, **numbers):
    """Return the counts of several lanes; device 0 has twice the optimiser's work. `sent` has bytes by purpose."""
    work = {name.replace("work/0", f"work/{i}"): value for i in range(devices) for name, value in WORK.items()}
    counts = {**work, "work/0/optimiser/bytes/move": 2e9, **numbers}
    for (purpose, source, destination), pieces in sent.items():
        name = f"sent/{purpose}/{source}/{destination}"
        counts |= {f"{name}/bytes": sum(pieces), f"{name}/messages": len(pieces), f"{name}/largest": max(pieces)}
    return StepCounts(devices, 4 * devices, counts, MODEL)


def summed(variant, counts, described=None, **setting):
    return sum_step(variant, counts, ONE, described or machine(max(counts.devices, 2)), Setting(**setting))


def ms(projected):
    return {part.name: pytest.approx(1e3 * seconds, abs=0.02) for part, seconds in projected.parts.items()}


def faster(part, bandwidth):
    return part.model_copy(update={"bandwidth": about(bandwidth)})


def test_one_device_computes_and_does_nothing_else():
    projected = summed(SINGLE, ONE)
    assert ms(projected) == {"COMPUTE": 31}
    assert (projected.devices, projected.batch, projected.bound_by) == (1, 4, Part.COMPUTE)


def test_the_measured_step_of_one_device_sets_the_speed():
    assert ms(summed(SINGLE, ONE, one_device_s=0.062)) == {"COMPUTE": 62}
    fitted = Fitted(speed_float32=0.5)
    assert ms(summed(SINGLE, ONE, math="float32", fitted=fitted)) == {"COMPUTE": 15.5}


def test_formats_have_their_own_peaks_and_speeds():
    peak = {**machine().device.peak, "bfloat16": about(8e12, "FLOP/s")}
    described = replace(machine(), device=machine().device.model_copy(update={"peak": peak}))
    assert ms(summed(SINGLE, ONE, math="tf32")) == {"COMPUTE": 8.5}
    assert ms(summed(SINGLE, ONE, math="tf32", fitted=Fitted(speed_tf32=2))) == {"COMPUTE": 17}
    cast = 6 * MODEL.parameter_bytes / 4 / 1e12 * 1e3
    assert ms(summed(SINGLE, ONE, described, math="bf16")) == {"COMPUTE": 30 / 8 + 1 + cast}


def test_stock_hides_neither_weights_nor_gradients():
    sent = {("weights", 0, 1): [2 * 10**7] * 2, ("gradients", 1, 0): [2 * 10**7] * 2, ("input", "host", 1): [10**7]}
    sent |= {("outputs", 1, 0): [10**6], ("output_gradients", 0, 1): [10**6]}
    projected = summed(STOCK, lanes(sent))
    assert ms(projected) == {"INPUT": 1, "COMPUTE": 32, "WEIGHTS": 4, "GRADIENTS": 4, "OUTPUTS": 0.2}
    assert projected.hidden_s == 0
    assert projected.communication_s == pytest.approx(8.2e-3, rel=1e-2)
    assert ms(summed(VariantId("floor"), lanes(sent))) == ms(projected)


def test_tuned_hides_all_but_the_first_and_the_last_piece():
    sent = {("weights", 0, 1): [2 * 10**7] * 4, ("gradients", 1, 0): [2 * 10**7] * 4}
    projected = summed(TUNED, lanes(sent))
    assert ms(projected) == {"COMPUTE": 32, "WEIGHTS": 2, "GRADIENTS": 2}
    assert projected.hidden_s == pytest.approx(12e-3, rel=1e-2)
    plain = summed(VariantId("tuned[overlap_broadcast=false,overlap_reduce=false]"), lanes(sent))
    assert ms(plain) == {"COMPUTE": 32, "WEIGHTS": 8, "GRADIENTS": 8}


def test_a_forward_hides_no_more_than_its_length():
    sent = {("weights", 0, 1): [10**7] * 30}
    assert ms(summed(TUNED, lanes(sent))) == {"COMPUTE": 32, "WEIGHTS": 20.03}


def test_a_star_loads_one_link_and_a_chain_has_more_hops():
    star = {("weights", 0, i): [10**7] * 2 for i in (1, 2, 3)}
    chain = {("weights", i, i + 1): [10**7] * 2 for i in range(3)}
    assert ms(summed(STOCK, lanes(star, 4)))["WEIGHTS"] == 6
    assert ms(summed(STOCK, lanes(chain, 4)))["WEIGHTS"] == 4  # 2 on each link, and one piece over two more hops
    back = {("gradients", i + 1, i): [10**7] * 2 for i in range(3)}
    assert ms(summed(STOCK, lanes(back, 4)))["GRADIENTS"] == 4


def test_devices_behind_one_uplink_share_it():
    described = machine(3)
    routes = {**described.routes, (0, 1): ("up 0", "uplink"), (0, 2): ("up 0", "uplink")}
    wide, wire = faster(described.links["up 0"], 1e12), described.links["up 0"]
    shared = replace(described, routes=routes, links={**described.links, "up 0": wide, "uplink": wire})
    assert ms(summed(STOCK, lanes({("weights", 0, i): [10**7] for i in (1, 2)}, 3), shared))["WEIGHTS"] == 2


def test_rings_carry_the_weights_once_where_nvlink_or_the_route_says_so():
    sent = {("weights", 0, i): [10**7] for i in (1, 2, 3)}
    described = machine(4)
    joined = replace(described, ring=replace(described.ring, hop="nvlink"))
    assert ms(summed(STOCK, lanes(sent, 4), joined))["WEIGHTS"] == 1.013
    projected = summed(NCCL, lanes(sent, 4), fitted=Fitted(beside=0.1))
    assert ms(projected) == {"COMPUTE": 32, "WEIGHTS": 1.013, "BESIDE": 3.2}


def test_ddp_exposes_its_buffers_and_its_last_bucket():
    projected = summed(DDP, ONE, bucket_bytes=2 * 10**7, fitted=Fitted(beside=0.1))
    # 10 MB end the first bucket, 20 MB the second, and 10 MB are left
    assert ms(projected) == {"COMPUTE": 31.16, "WEIGHTS": 0.1, "GRADIENTS": 1.02, "BESIDE": 3.12}
    slow = replace(machine(), ring=replace(machine().ring, bus_bandwidth=about(1e9)))
    assert ms(summed(DDP, ONE, slow, bucket_bytes=10**7))["GRADIENTS"] == 40 - 20 + 0.088


def test_several_machines_have_far_steps():
    ring = replace(machine(4).ring, machines=2, far_step=about(1.0, "s"))
    assert summed(DDP, ONE, replace(machine(4), ring=ring), bucket_bytes=MIB).parts[Part.GRADIENTS] > 2


def test_the_last_device_starts_when_the_host_has_reached_it_unless_it_runs_ahead():
    counts = lanes({("weights", 0, 1): [10**7]}, **{"early/copy": 5000})
    assert ms(summed(TUNED, counts)) == {"COMPUTE": 32, "WEIGHTS": 1, "START": 4}
    assert ms(summed(TUNED, counts, ahead=True)) == {"COMPUTE": 32, "WEIGHTS": 1}
    stock = summed(STOCK, lanes({}, **{"early/view": 500, "host/forward/0/view": 500}))
    assert ms(stock)["START"] == 0.01  # replicas of ten modules on one device, with their views
    assert stock.host_s == pytest.approx(1e-6 * (1 + 1 + MODEL.parameters + 10))


def test_threads_share_the_interpreter_and_engines_do_not():
    calls = {
        f"host/forward/{thread}/{cost}": 10_000 for thread in (1, 2) for cost in ("forward_python", "forward_native")
    }
    calls |= {"host/backward/3/backward": 20_000, "host/backward/4/backward": 10_000, "host/forward/0/view": 1000}
    counts = lanes({}, **calls)
    rest = 1e-6 * (1 + 1 + MODEL.parameters)  # the step, the begin of the backward, the optimiser
    assert summed(TUNED, counts).host_s == pytest.approx(rest + 1e-3 + 30e-3 + 1e-6 + 20e-3)


def test_graphs_are_launched_once_for_each_lane_and_phase():
    calls = {"host/forward/0/forward_python": 10**6, "work/1/forward/kernels": 100, "work/1/backward/kernels": 200}
    calls |= {"host/backward/3/backward": 10**6, "host/backward/3/event_record": 5, "early/stream_wait": 7}
    projected = summed(VariantId("tuned[graphs=true]"), lanes({}, **calls))
    rest = 1 + 1 + 2 * MODEL.parameters + 7 + 5  # the optimiser, a view of each gradient
    assert projected.host_s == pytest.approx(1e-6 * (rest + 2 * (2 + 100) + 2 * 2 + 200))


def test_a_loader_limits_the_step():
    slow = summed(SINGLE, ONE, loader_items_per_s=10)
    assert (slow.step_s, slow.bound_by) == (0.4, Part.LOADER)
    assert summed(SINGLE, ONE, loader_items_per_s=1e9).bound_by is Part.COMPUTE


def test_a_step_fits_or_not_or_nobody_knows():
    assert summed(SINGLE, ONE).fits is None
    for size, fits in ((9e9, True), (1e10, False)):
        assert summed(TUNED, lanes({}, **{"memory/0": 1e9, "memory/1": size})).fits is fits
    counted = replace(ONE, numbers={**WORK, "memory/0": 9.48e9})
    assert summed(SINGLE, counted).fits
    assert not summed(DDP, counted).fits  # its buckets are as large as the gradients


@pytest.mark.parametrize("variant", [STOCK, TUNED, DDP, NCCL])
def test_a_faster_machine_never_takes_longer(variant):
    sent = {("weights", 0, 1): [10**8], ("gradients", 1, 0): [10**8], ("input", "host", 1): [10**7]}
    counts = ONE if variant is DDP else lanes(sent, **{"host/forward/0/view": 10**5})
    plain = summed(variant, counts).step_s
    described = machine()
    half = dict.fromkeys(HostCost, about(5e-7, "s"))
    changed = {
        "host": replace(described, host=described.host.model_copy(update={"costs": half})),
        "ring": replace(described, ring=replace(described.ring, bus_bandwidth=about(2e10))),
        "link": replace(described, links={name: faster(link, 2e10) for name, link in described.links.items()}),
        "device": replace(described, device=faster(described.device, 2e12)),
    }
    assert all(summed(variant, counts, faster_machine).step_s <= plain for faster_machine in changed.values())
    assert min(summed(variant, counts, faster_machine).step_s for faster_machine in changed.values()) < plain
