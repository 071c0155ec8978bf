"""NCCL's times: by hand, against its limits, and properties for any draw of the parameters."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpbench.projection.described import machine_file
from dpbench.projection.described.machine import Machine
from dpbench.projection.described.machine_file import machine_names
from dpbench.projection.described.nccl import collective_s

OPS = ("broadcast", "reduce", "all_reduce")
MIB = 2**20
load_machine = cache(machine_file.load_machine)
Value = Callable[[str], NDArray[np.float64]]


def mids(machine: Machine, **changed: float) -> Value:
    parameters = machine.parameters()
    values = {name: parameter.mid for name, parameter in parameters.items()}
    for name, value in changed.items():
        key = name.replace("__", ".")
        assert key in values
        values[key] = value
    return lambda name: np.array([values[name]])


def seconds(op: str, size_bytes: float, machine: Machine, **changed: float) -> float:
    (found,) = collective_s(op, size_bytes, machine, mids(machine, **changed))
    return float(found)


def test_a_large_all_reduce_on_pcie_is_the_ring_by_hand() -> None:
    machine = load_machine("8xV100-pcie")
    # 14 steps of Simple over PCIe, and 2 x 7 / 8 of the bytes at the bus bandwidth of 7.5 GB/s
    by_hand = 8.4e-6 + 14 * 5.7e-6 + 14 / 8 * 100e6 / 7.5e9
    assert seconds("all_reduce", 100e6, machine) == pytest.approx(by_hand)


def test_a_small_all_reduce_on_pcie_is_ll_at_half_the_bandwidth() -> None:
    machine = load_machine("8xV100-pcie")
    by_hand = 6.6e-6 + 14 * 1e-6 + 14 / 8 * 1000 / (0.5 * 7.5e9)
    assert seconds("all_reduce", 1000, machine) == pytest.approx(by_hand)


def test_ll128_is_for_nvlink_of_server_cards_alone() -> None:
    machine = load_machine("8xV100-sxm")
    by_hand = 14e-6 + 14 * 1.9e-6 + 14 / 8 * 4e6 / (0.9375 * 120e9)
    assert seconds("all_reduce", 4e6, machine) == pytest.approx(by_hand)
    without = {name for name in machine_names() if not any("ll128" in key for key in load_machine(name).nccl)}
    pcie = {name for name in machine_names() if "pcie" in name}
    assert without == pcie | {"8xP100-sxm", "2xTITAN-RTX-nvlink"}


def test_a_large_broadcast_is_pipelined() -> None:
    machine = load_machine("8xV100-pcie")
    by_hand = 8.4e-6 + 7 * 5.7e-6 + 100e6 / 7.5e9
    assert seconds("broadcast", 100e6, machine) == seconds("reduce", 100e6, machine) == pytest.approx(by_hand)


def test_steps_between_machines_are_over_the_network() -> None:
    machine = load_machine("2x8xV100-100gb")
    ring = 8.4e-6 + 28 * 3.4e-6 + 2 * 14e-6 + 30 / 16 * 1e9 / 10.5e9
    assert seconds("all_reduce", 1e9, machine) == pytest.approx(ring)
    # a tree for small messages: 7 steps of a chain and one over the network, up and down
    tree = 6.8e-6 + 14 * 0.6e-6 + 2 * 5e-6 + 64 / (0.263 / 2 * 10.5e9)
    assert seconds("all_reduce", 64, machine) == pytest.approx(tree)
    for name in ("ring_network_simple", "tree_network_ll"):
        assert f"nccl.{name}" in machine.parameters()
        assert f"nccl.{name}" not in load_machine("8xV100-sxm").parameters()


def test_a_tree_is_slowest_in_nccls_middle_sizes() -> None:
    machine = load_machine("2x8xV100-100gb")
    no_ring = {f"nccl__ring_base_{protocol}": 1.0 for protocol in ("ll", "ll128", "simple")}
    only_ll = {f"nccl__tree_base_{protocol}": 1.0 for protocol in ("ll128", "simple")}
    times = [seconds("all_reduce", 64 * 2**i, machine, **no_ring, **only_ll) for i in (12, 24)]
    rest = 6.8e-6 + 14 * 0.6e-6 + 2 * 5e-6
    per_byte = [(time - rest) / (64 * 2**i) for i, time in zip((12, 24), times, strict=True)]
    assert per_byte[0] / per_byte[1] == pytest.approx(1 / 0.4)


@given(st.sampled_from(["ll", "ll128", "simple"]), st.floats(64, 2**31), st.floats(1, 2))
def test_more_bytes_never_take_a_tree_less(protocol: str, size: float, factor: float) -> None:
    machine = load_machine("2x8xV100-100gb")
    others = {name: 100.0 for name in machine.nccl if "_base_" in name and name != f"tree_base_{protocol}"}
    alone = {f"nccl__{name}": value for name, value in others.items()}
    less, more = (seconds("all_reduce", each, machine, **alone) for each in (size, size * factor))
    assert less <= more * (1 + 1e-12) < 100


def test_a_single_device_needs_no_time() -> None:
    machine = load_machine("8xV100-sxm")
    assert collective_s("broadcast", 1e9, replace(machine, ring=None), mids(machine)).tolist() == [0.0]


def test_an_unknown_operation_is_an_error() -> None:
    machine = load_machine("8xV100-sxm")
    with pytest.raises(KeyError, match="all_gather"):
        collective_s("all_gather", 1e9, machine, mids(machine))


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Machine, dict[str, NDArray[np.float64]]]:
    """An operation, a machine, and draws of its parameters between low and high."""
    machine = load_machine(draw(st.sampled_from(machine_names())))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = {name: rng.uniform(value.low, value.high, 5) for name, value in machine.parameters().items()}
    return draw(st.sampled_from(OPS)), machine, values


SIZES = st.floats(1, 1e11)


@given(cases(), SIZES, st.floats(1, 4))
def test_more_bytes_never_take_less(case: tuple, size: float, factor: float) -> None:
    op, machine, values = case
    less, more = (collective_s(op, s, machine, values.__getitem__) for s in (size, size * factor))
    assert less.shape == more.shape == (5,)
    assert np.all(more >= less * (1 - 1e-12))
    assert np.all(less > 0)


@given(cases(), SIZES, st.integers(1, 3))
def test_more_ranks_never_take_less(case: tuple, size: float, factor: int) -> None:
    op, machine, values = case
    larger = replace(machine, devices=machine.devices * factor)
    less, more = (collective_s(op, size, each, values.__getitem__) for each in (machine, larger))
    assert np.all(more >= less * (1 - 1e-12))


@given(cases(), SIZES, st.floats(1, 4))
def test_more_bandwidth_never_takes_more(case: tuple, size: float, factor: float) -> None:
    op, machine, values = case
    faster = values | {"ring.bus_bandwidth": values["ring.bus_bandwidth"] * factor}
    slow, fast = (collective_s(op, size, machine, each.__getitem__) for each in (values, faster))
    assert np.all(fast <= slow * (1 + 1e-12))


@given(cases(), st.floats(1e8, 1e11))
def test_a_large_message_takes_at_least_its_bytes_at_the_bus_bandwidth(case: tuple, size: float) -> None:
    op, machine, values = case
    passes = 2 * (machine.devices - 1) / machine.devices if op == "all_reduce" else 1
    bound = passes * size / values["ring.bus_bandwidth"]
    found = collective_s(op, size, machine, values.__getitem__)
    assert np.all(found >= bound)
    assert np.all(found <= 1.1 * bound + 5e-3)


@pytest.mark.parametrize("name", machine_names())
def test_every_constant_of_nccl_has_an_effect(name: str) -> None:
    """At some size, a constant moves a collective's time, if those of the other algorithms and protocols are bad."""
    machine = load_machine(name)
    for constant in machine.nccl:
        algorithm, what, protocol = constant.split("_")
        others = {
            key.replace("nccl.", "nccl__"): 1.0
            for key in machine.parameters()
            if key.startswith("nccl.") and "_base_" in key and key != f"nccl.{algorithm}_base_{protocol}"
        }
        old = machine.nccl[constant].mid
        before, after = (
            seconds("all_reduce", MIB, machine, **others, **{f"nccl__{constant}": value}) for value in (old, old / 2)
        )
        assert (after > before) if what == "share" else (after < before), constant
