"""One call of NVML: its result, the reason for a refusal, or a lost GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec

from dpbench.measure.gpu.bindings import pynvml
from dpbench.records.readings import Reading

P = ParamSpec("P")


class NotOfferedError(Exception):
    """Its text is the reason."""


class LostGpuError(RuntimeError):
    """A GPU of the case is gone, or cannot be used until it is reset."""


@dataclass(frozen=True)
class Gpu:
    device: str
    uuid: str
    handle: Any


@dataclass(frozen=True)
class CounterState:
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
    """Load the driver's library until the process ends; raises NotOfferedError without one."""
    ask(pynvml.nvmlInit)


def ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """Raises NotOfferedError, also for names that pynvml cannot decode, as of drivers under WSL; or LostGpuError."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        _refuse(error, function.__name__)
    except Exception as error:
        raise NotOfferedError(f"{function.__name__}: {type(error).__name__}: {error}") from error


def check(status: int, what: str) -> None:
    """Raise as `ask` does if `status`, one result's of several, is an error."""
    if status != pynvml.NVML_SUCCESS:
        _refuse(pynvml.NVMLError(status), what)


def _refuse(error: Any, what: str) -> None:
    lost = error.value in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
    raise (LostGpuError if lost else NotOfferedError)(f"{what}: {error}") from error


def find_gpu(device: str, uuid: str) -> Gpu:
    """The GPU with torch's bare UUID; raises NotOfferedError if NVML does not know it, or if MIG has split it."""
    handle = _handle(uuid)
    if handle is None:
        raise NotOfferedError(f"NVML knows neither GPU-{uuid} nor MIG-{uuid}")
    if _is_split(handle):
        raise NotOfferedError(f"MIG has split the GPU of {uuid}; NVML's figures are those of the whole GPU")
    return Gpu(device, f"GPU-{uuid}", handle)


def _handle(uuid: str) -> Any:
    for prefix in ("GPU", "MIG"):
        try:
            return ask(pynvml.nvmlDeviceGetHandleByUUID, f"{prefix}-{uuid}")
        except NotOfferedError as error:
            if not isinstance(error.__cause__, pynvml.NVMLError_NotFound):
                raise
    return None


def _is_split(handle: Any) -> bool:
    try:
        is_slice = bool(ask(pynvml.nvmlDeviceIsMigDeviceHandle, handle).value)
        return is_slice or ask(pynvml.nvmlDeviceGetMigMode, handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    except NotOfferedError:  # the GPU or the driver is older than MIG
        return False


def counter(value_type: int, value: Any) -> CounterState:
    """Read NVML's union `value`; raises NotOfferedError."""
    if value_type not in _MEMBERS:
        raise NotOfferedError(f"NVML returned a value of the unknown type {value_type}")
    member, bits = _MEMBERS[value_type]
    return CounterState(getattr(value, member), bits)


def reading(read: Callable[P, Reading], *arguments: P.args, **named: P.kwargs) -> Reading:
    """The result of `read`, or the reason of its NotOfferedError."""
    try:
        return read(*arguments, **named)
    except NotOfferedError as error:
        return Reading(reason=str(error))
