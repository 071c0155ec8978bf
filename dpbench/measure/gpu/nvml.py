"""NVML asked, one call at a time: an answer, the reason for which there is none, or a GPU that is lost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec

import pynvml

from dpbench.results.readings import Reading

P = ParamSpec("P")


class NotOfferedError(Exception):
    """What is asked for is not to be had here; the text is the reason."""


class LostGpuError(RuntimeError):
    """A GPU of the case has gone, or is useless until it is reset."""


@dataclass(frozen=True)
class Gpu:
    """`device` is torch's name; torch and NVML number GPUs differently, only the UUID is common to both."""

    device: str
    uuid: str
    handle: Any


@dataclass(frozen=True)
class Counter:
    """An ever-growing counter's state; it starts anew at 2 ** bits."""

    value: int
    bits: int


_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: ("dVal", 0),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: ("uiVal", 32),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: ("ulVal", 64),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: ("ullVal", 64),
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: ("sllVal", 64),
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: ("siVal", 32),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: ("usVal", 16),
}


def start() -> None:
    """Load the driver's library; raises NotOfferedError where there is none. The process' end unloads it."""
    ask(pynvml.nvmlInit)


def ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call one of pynvml's functions; raises NotOfferedError with its name and NVML's words, or LostGpuError."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        _refuse(error, function.__name__)


def check(status: int, what: str) -> None:
    """Raise, as `ask` does, for one of several answers of a call, each with a status of its own."""
    if status != pynvml.NVML_SUCCESS:
        _refuse(pynvml.NVMLError(status), what)


def _refuse(error: Any, what: str) -> None:
    lost = error.value in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
    raise (LostGpuError if lost else NotOfferedError)(f"{what}: {error}") from error


def find_gpu(device: str, uuid: str) -> Gpu:
    """The GPU with torch's bare UUID.

    Raises NotOfferedError also for a slice of a GPU that MIG has split: what NVML counts is the whole GPU's.
    """
    handle = _handle(uuid)
    if handle is None:
        raise NotOfferedError(f"NVML knows neither GPU-{uuid} nor MIG-{uuid}")
    if _is_split(handle):
        raise NotOfferedError(f"MIG has split the GPU of {uuid}; what NVML counts is the whole GPU's")
    return Gpu(device, f"GPU-{uuid}", handle)


def _handle(uuid: str) -> Any:
    for prefix in ("GPU", "MIG"):
        try:
            return pynvml.nvmlDeviceGetHandleByUUID(f"{prefix}-{uuid}")
        except pynvml.NVMLError_NotFound:
            continue
        except pynvml.NVMLError as error:
            _refuse(error, "nvmlDeviceGetHandleByUUID")
    return None


def _is_split(handle: Any) -> bool:
    try:
        is_slice = bool(ask(pynvml.nvmlDeviceIsMigDeviceHandle, handle).value)
        return is_slice or ask(pynvml.nvmlDeviceGetMigMode, handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    except NotOfferedError:  # a GPU, or a driver, older than MIG
        return False


def counter(value_type: int, value: Any) -> Counter:
    """One of a union's members, by NVML's type of value."""
    if value_type not in _MEMBERS:
        raise NotOfferedError(f"NVML answered with a value of the unknown type {value_type}")
    member, bits = _MEMBERS[value_type]
    return Counter(getattr(value, member), bits)


def reading(read: Callable[P, Reading], *arguments: P.args, **named: P.kwargs) -> Reading:
    """What `read` gives, or a reading without a value where that is not offered."""
    try:
        return read(*arguments, **named)
    except NotOfferedError as error:
        return Reading(reason=str(error))
