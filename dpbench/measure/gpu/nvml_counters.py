"""The growth of NVML's counters of traffic, throttling and energy between the window's edges.

Units are from nvml.h: bytes for PCIe traffic, KiB for NVLink, nanoseconds for throttling. Scope 0 would mean the first
NVLink alone. The newer ids of thermal and power-brake slowdown are not used: drivers of CUDA 12 and 13 give 251-253 and
269-271 different meanings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpbench.measure.gpu.bindings import pynvml
from dpbench.measure.gpu.nvml import CounterState, Gpu, NotOfferedError, ask, check, counter
from dpbench.records.readings import Reading

_ALL_LINKS = 0xFFFFFFFF
_MOST_BYTES_PER_S = {"pcie": 128e9, "nvlink": 2e12}  # above PCIe 6.0 x16 and above NVLink 5, in one direction
_MOST_W = 10_000.0
_REFRESH_S = (
    0.1  # of the energy counter (measured by zeus, ml.energy); slack for other counters that the driver updates late
)
LEAST_ENERGY_WINDOW_S = 1.0
"""The counter's refresh may shift a tenth of the energy of such a window."""
ADVISED_WINDOW_S = 2.0
"""The counter's refresh may shift a twentieth of the energy of such a window."""


@dataclass(frozen=True)
class NvmlField:
    id: int
    scope: int = 0


TRAFFIC = {
    "pcie_sent": NvmlField(pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES),
    "pcie_received": NvmlField(pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES),
    "nvlink_sent": NvmlField(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
    "nvlink_received": NvmlField(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
}
THROTTLING = {
    "power": NvmlField(pynvml.NVML_FI_DEV_PERF_POLICY_POWER),
    "thermal": NvmlField(pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL),
    "sync_boost": NvmlField(pynvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST),
    "board_limit": NvmlField(pynvml.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT),
    "reliability": NvmlField(pynvml.NVML_FI_DEV_PERF_POLICY_RELIABILITY),
}
_FIELDS = {**TRAFFIC, **THROTTLING}
_ENERGY = "energy"

CounterStates = Mapping[str, CounterState | str]
"""Counters by name, or the reason for one that the GPU does not offer."""


def read_counters(gpu: Gpu) -> CounterStates:
    """Raises LostGpuError."""
    try:
        states = dict(zip(_FIELDS, _fields(gpu, list(_FIELDS.values())), strict=True))
    except NotOfferedError as error:
        states = dict.fromkeys(_FIELDS, str(error))
    try:
        return {**states, _ENERGY: CounterState(ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, gpu.handle), 64)}
    except NotOfferedError as error:
        return {**states, _ENERGY: str(error)}


def _fields(gpu: Gpu, fields: Sequence[NvmlField]) -> list[CounterState | str]:
    values = ask(pynvml.nvmlDeviceGetFieldValues, gpu.handle, [(field.id, field.scope) for field in fields])
    states: list[CounterState | str] = []
    for value in values:
        try:
            check(value.nvmlReturn, f"nvmlDeviceGetFieldValues({value.fieldId})")
            states.append(counter(value.valueType, value.value))
        except NotOfferedError as error:
            states.append(str(error))
    return states


def growth(before: CounterState | str, after: CounterState | str, most: float) -> int:
    """The growth of a counter, which may have wrapped once.

    Raises NotOfferedError if it may have wrapped twice, or grew by more than `most`: then it counts something else.
    """
    if not (isinstance(before, CounterState) and isinstance(after, CounterState)):
        raise NotOfferedError(str(before if isinstance(before, str) else after))
    capacity = 2**after.bits
    if most >= capacity:
        raise NotOfferedError(f"a counter of {after.bits} bits may have wrapped more than once in the window")
    grown = (after.value - before.value) % capacity
    if grown > most:
        raise NotOfferedError(
            f"the counter moved from {before.value} to {after.value}, by more than is possible: {most:.6g}"
        )
    return grown


def traffic_bytes(name: str, before: CounterStates, after: CounterStates, window_s: float) -> Reading:
    """Bytes of one of `TRAFFIC` in the window. Raises NotOfferedError as `growth` does."""
    unit_bytes = 1024 if name.startswith("nvlink") else 1
    most = _MOST_BYTES_PER_S[name.partition("_")[0]] * window_s / unit_bytes
    return Reading(value=unit_bytes * growth(before[name], after[name], most), source="counter")


def energy_j(before: CounterStates, after: CounterStates, window_s: float) -> Reading:
    """Raises NotOfferedError as `growth` does, and if the window is too short or the counter did not change."""
    if window_s < LEAST_ENERGY_WINDOW_S:
        raise NotOfferedError(
            f"the window of {window_s:.3g} s is shorter than the {LEAST_ENERGY_WINDOW_S:g} s that the energy counter "
            f"needs; sample for {ADVISED_WINDOW_S:g} s"
        )
    most_mj = 1000 * _MOST_W * (window_s + _REFRESH_S)
    grown_mj = growth(before[_ENERGY], after[_ENERGY], most_mj)
    if grown_mj == 0:
        raise NotOfferedError(f"the counter, updated about every 0.1 s, did not change in {window_s:.3g} s")
    return Reading(value=grown_mj / 1000)


def throttled_s(cause: str, before: CounterStates, after: CounterStates, window_s: float) -> Reading:
    """The seconds for which one of `THROTTLING` held the clocks down. Raises NotOfferedError as `growth` does."""
    most_ns = 1e9 * (window_s + _REFRESH_S)
    return Reading(value=growth(before[cause], after[cause], most_ns) / 1e9)
