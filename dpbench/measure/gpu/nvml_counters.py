"""NVML's counters that cost no sampling: read at two moments, their difference is what happened in between.

Field values and their units are nvml.h's: PCIe in bytes, of which it says that they can wrap; NVLink in KiB, where the
scope UINT_MAX means all links and 0 would be the first alone; times of throttling in nanoseconds. The newer ids of
thermal and power-brake slowdown are not used: drivers of CUDA 12 and 13 give the numbers 251-253 and 269-271 to
different things.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pynvml

from dpbench.measure.gpu.nvml import Counter, Gpu, NotOfferedError, ask, check, counter
from dpbench.results.readings import Reading

_ALL_LINKS = 0xFFFFFFFF
_MOST_BYTES_PER_S = {"pcie": 128e9, "nvlink": 2e12}  # above PCIe 6.0 x16 and above NVLink 5, in one direction
_MOST_W = 10_000.0
_REFRESH_S = 0.1  # of the energy counter (measured by zeus, ml.energy), and slack for what else the driver counts late


@dataclass(frozen=True)
class Field:
    id: int
    scope: int = 0


TRAFFIC = {
    "pcie_sent": Field(pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES),
    "pcie_received": Field(pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES),
    "nvlink_sent": Field(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
    "nvlink_received": Field(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
}
THROTTLING = {
    "power": Field(pynvml.NVML_FI_DEV_PERF_POLICY_POWER),
    "thermal": Field(pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL),
    "sync_boost": Field(pynvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST),
    "board_limit": Field(pynvml.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT),
    "reliability": Field(pynvml.NVML_FI_DEV_PERF_POLICY_RELIABILITY),
}
_FIELDS = {**TRAFFIC, **THROTTLING}
_ENERGY = "energy"

Counters = Mapping[str, Counter | str]
"""By name; a reason where the GPU does not offer one."""


def read_counters(gpu: Gpu) -> Counters:
    """All counters at this moment, in two calls."""
    try:
        found = dict(zip(_FIELDS, _fields(gpu, list(_FIELDS.values())), strict=True))
    except NotOfferedError as error:
        found = dict.fromkeys(_FIELDS, str(error))
    try:
        return {**found, _ENERGY: Counter(ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, gpu.handle), 64)}
    except NotOfferedError as error:
        return {**found, _ENERGY: str(error)}


def _fields(gpu: Gpu, fields: Sequence[Field]) -> list[Counter | str]:
    answers = ask(pynvml.nvmlDeviceGetFieldValues, gpu.handle, [(field.id, field.scope) for field in fields])
    found: list[Counter | str] = []
    for answer in answers:
        try:
            check(answer.nvmlReturn, f"nvmlDeviceGetFieldValues({answer.fieldId})")
            found.append(counter(answer.valueType, answer.value))
        except NotOfferedError as error:
            found.append(str(error))
    return found


def growth(before: Counter | str, after: Counter | str, most: float) -> int:
    """By how much a counter grew, wrapped or not.

    Raises NotOfferedError where it may have wrapped more than once, as `most` is what it can have grown by, and where
    it grew by more than that: then it is not what it is taken for.
    """
    if not (isinstance(before, Counter) and isinstance(after, Counter)):
        raise NotOfferedError(str(before if isinstance(before, str) else after))
    capacity = 2**after.bits
    if most >= capacity:
        raise NotOfferedError(f"a counter of {after.bits} bits may have wrapped more than once in the window")
    grown = (after.value - before.value) % capacity
    if grown > most:
        raise NotOfferedError(f"the counter moved from {before.value} to {after.value}, more than can be: {most:.6g}")
    return grown


def traffic_bytes(name: str, before: Counters, after: Counters, window_s: float) -> Reading:
    """Of one of `TRAFFIC`. Raises NotOfferedError where that cannot be said."""
    unit_bytes = 1024 if name.startswith("nvlink") else 1
    most = _MOST_BYTES_PER_S[name.partition("_")[0]] * window_s / unit_bytes
    return Reading(value=unit_bytes * growth(before[name], after[name], most), source="counter")


def energy_j(before: Counters, after: Counters, window_s: float) -> Reading:
    """Raises NotOfferedError where that cannot be said, as of a window too short for the counter to move."""
    most_mj = 1000 * _MOST_W * (window_s + _REFRESH_S)
    grown_mj = growth(before[_ENERGY], after[_ENERGY], most_mj)
    if grown_mj == 0:
        raise NotOfferedError(f"the counter, brought up to date every 0.1 s or so, stood still for {window_s:.3g} s")
    return Reading(value=grown_mj / 1000)


def throttled_s(cause: str, before: Counters, after: Counters, window_s: float) -> Reading:
    """By one of `THROTTLING`. Raises NotOfferedError where that cannot be said.

    A time above the window's was counted in another unit than nanoseconds.
    """
    most_ns = 1e9 * (window_s + _REFRESH_S)
    return Reading(value=growth(before[cause], after[cause], most_ns) / 1e9)
