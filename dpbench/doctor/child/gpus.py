"""Findings on each GPU, from NVML, before this process uses one."""

from collections.abc import Callable, Iterator
from typing import Any

from dpbench.doctor.findings import Finding, note, ok, unknown, unreliable
from dpbench.measure.gpu.bindings import pynvml
from dpbench.measure.gpu.nvml import LostGpuError, NotOfferedError, ask, start

_BUSY_PERCENT = 5

_SLOWED = {
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "too hot (hardware)",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "too hot (driver)",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
}
_HELD = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power cap",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync boost group",
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: "clocks set by a user",
    pynvml.nvmlClocksEventReasonDisplayClockSetting: "display clocks",
}


def examine_gpus() -> list[Finding]:
    """A lost GPU or a missing driver is one finding."""
    try:
        start()
        count = int(ask(pynvml.nvmlDeviceGetCount))
    except (LostGpuError, NotOfferedError) as error:
        return [unknown("GPUs", str(error))]
    return [finding for index in range(count) for finding in _of_gpu(index)] or [ok("GPUs", "none")]


def _of_gpu(index: int) -> Iterator[Finding]:
    name = f"GPU {index}"
    try:
        handle = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
        for what, check in _CHECKS.items():
            yield _checked(f"{name} {what}", check, handle)
    except LostGpuError as error:
        yield unreliable(name, f"lost: {error}", "reset it, or restart the machine")
    except NotOfferedError as error:
        yield unknown(name, str(error))


def _checked(what: str, check: Callable[[str, Any], Finding], handle: Any) -> Finding:
    try:
        return check(what, handle)
    except NotOfferedError as error:
        return unknown(what, str(error))


def _persistence(what: str, handle: Any) -> Finding:
    if ask(pynvml.nvmlDeviceGetPersistenceMode, handle):
        return ok(what, "on")
    return note(what, "off", "`nvidia-smi -pm 1` as root keeps the driver loaded between processes")


def _clocks(what: str, handle: Any) -> Finding:
    parts = []
    for name, clock in (("SM", pynvml.NVML_CLOCK_SM), ("memory", pynvml.NVML_CLOCK_MEM)):
        now, most = (
            ask(read, handle, clock) for read in (pynvml.nvmlDeviceGetClockInfo, pynvml.nvmlDeviceGetMaxClockInfo)
        )
        parts.append(f"{name} at {now} of {most} MHz")
    return ok(what, ", ".join(parts))


def _throttling(what: str, handle: Any) -> Finding:
    reasons = int(ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle))
    slowed = [name for bit, name in _SLOWED.items() if reasons & bit]
    held = [name for bit, name in _HELD.items() if reasons & bit]
    if slowed:
        return unreliable(
            what, ", ".join(slowed + held), "wait until the GPU has cooled; check its fans and its power supply"
        )
    return note(what, ", ".join(held), "the clocks stay below their maximum") if held else ok(what, "none")


def _power_limit(what: str, handle: Any) -> Finding:
    limit_w = ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle) / 1000
    usual_w = ask(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle) / 1000
    if limit_w < usual_w:
        return note(what, f"{limit_w:g} W, {usual_w:g} W by default", "slower than other GPUs of this model")
    return ok(what, f"{limit_w:g} W")


def _ecc(what: str, handle: Any) -> Finding:
    if ask(pynvml.nvmlDeviceGetEccMode, handle)[0] != pynvml.NVML_FEATURE_ENABLED:
        return note(what, "off", "errors in the GPU's memory are not detected")
    corrected, uncorrected = (
        _memory_errors(handle, kind)
        for kind in (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
    )
    value = f"{corrected} corrected and {uncorrected} uncorrected errors since the driver was loaded"
    if uncorrected:
        return unreliable(what, value, "results may be wrong: reset the GPU, and replace it if the errors return")
    return note(what, value, "the GPU's memory wears out") if corrected else ok(what, value)


def _memory_errors(handle: Any, kind: int) -> int:
    """`nvmlDeviceGetTotalEccErrors` would include the caches, but CUDA 14 removes it (nvml.h)."""
    where = pynvml.NVML_MEMORY_LOCATION_DRAM
    return int(ask(pynvml.nvmlDeviceGetMemoryErrorCounter, handle, kind, pynvml.NVML_VOLATILE_ECC, where))


def _remapped_rows(what: str, handle: Any) -> Finding:
    _, _, pending, failed = ask(pynvml.nvmlDeviceGetRemappedRows, handle)
    if failed:
        return unreliable(what, "a row of the memory could not be replaced", "replace the GPU")
    return note(what, "some rows are due", "reset the GPU") if pending else ok(what, "none due")


def _processes(what: str, handle: Any) -> Finding:
    computing = [p.pid for p in ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)]
    drawing = [p.pid for p in ask(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle)]
    if computing:
        return unreliable(
            what, f"process {', '.join(map(str, computing))} computes", "end these processes, or use another GPU"
        )
    if drawing:
        return note(what, f"process {', '.join(map(str, drawing))} draws", "a display takes a little of the GPU's time")
    return ok(what, "none")


def _busy(what: str, handle: Any) -> Finding:
    percent = ask(pynvml.nvmlDeviceGetUtilizationRates, handle).gpu
    if percent > _BUSY_PERCENT:
        return unreliable(
            what, f"{percent} % of the time", "another process uses the GPU, perhaps in another container"
        )
    return ok(what, f"{percent} % of the time")


def _mig(what: str, handle: Any) -> Finding:
    if ask(pynvml.nvmlDeviceGetMigMode, handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
        return note(what, "on", "other slices share the power, clocks and links; slices have no peer access")
    return ok(what, "off")


_CHECKS: dict[str, Callable[[str, Any], Finding]] = {
    "processes": _processes,
    "busy": _busy,
    "clocks": _clocks,
    "throttling": _throttling,
    "power limit": _power_limit,
    "persistence": _persistence,
    "ECC": _ecc,
    "rows to be replaced": _remapped_rows,
    "MIG": _mig,
}
