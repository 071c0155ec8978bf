"""From the user's device arguments to the devices of the lanes."""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch._utils import _get_all_device_indices, _get_available_device_type

DeviceLike = int | str | torch.device
CPU = torch.device("cpu")


def resolve_device(device: DeviceLike) -> torch.device:
    """The device with its index; an index counts the default accelerator's devices, ``-1`` is the CPU."""
    if isinstance(device, torch.device) and (device is CPU or (device.index is not None and device.type != "cpu")):
        return device
    if isinstance(device, int):
        if device == -1:
            return CPU
        kind = _get_available_device_type()
        if kind is None:
            raise ValueError(
                f"device {device} is an index, but there is no accelerator here; give a name such as 'cpu'"
            )
        if device < 0:
            raise ValueError(f"device {device} is negative; indices from 0 up, and -1 for the CPU, are allowed")
        return torch.device(kind, device)
    try:
        device = torch.device(device)
    except TypeError as error:
        text = f"Expected a torch.device with a specified index or an integer, but got:{device}"  # stock's
        raise ValueError(f"{text}; a name such as 'cpu' is allowed too") from error
    if device.type == "cpu":
        return CPU
    if device.index is None:
        return torch.device(device.type, getattr(_module_of(device), "current_device", lambda: 0)())  # mps has one
    return device


def current_device() -> torch.device:
    """The default accelerator's current device; the CPU without an accelerator, or with "mps" only."""
    kind = _get_available_device_type()
    return CPU if kind in (None, "mps") else torch.device(kind, _module_of(torch.device(kind)).current_device())


def resolve_device_ids(device_ids: Sequence[DeviceLike] | None) -> list[torch.device]:
    """One device per lane; none if there is no accelerator (or only "mps") and no device is given by name, as in stock.

    Raises ValueError for a list that is empty, mixes device types, or names a device that does not exist.
    """
    if device_ids is not None and (isinstance(device_ids, str) or not isinstance(device_ids, Collection)):
        raise ValueError(f"device_ids is {device_ids!r}; a list of indices, names and devices is allowed")
    if device_ids is not None and not device_ids:
        raise ValueError(f"device_ids is {device_ids!r}; at least one device is needed")
    if device_ids is None or all(isinstance(device, int) for device in device_ids):
        if _get_available_device_type() in (None, "mps"):
            return []
        device_ids = _get_all_device_indices() if device_ids is None else device_ids
    devices = [resolve_device(device) for device in device_ids]
    kinds = {device.type for device in devices}
    if len(kinds) > 1:
        raise ValueError(f"device_ids is {list(device_ids)!r}; all lanes must be of one type, not {sorted(kinds)}")
    if len(devices) > 1 and devices[0].type != "cpu" and not hasattr(_module_of(devices[0]), "Stream"):
        raise ValueError(
            f"device_ids is {list(device_ids)!r}; torch has no streams for {devices[0].type!r}, so one lane is allowed"
        )
    check_exist("device_ids", devices)
    return devices


def check_not_capturing(device: torch.device) -> None:
    if device.type == "cpu":
        return
    is_capturing = getattr(_module_of(device), "is_current_stream_capturing", None)
    if is_capturing is not None and is_capturing():
        raise RuntimeError(
            "a graph capture is not supported: the wrapper allocates, sends and waits in ways that depend on earlier "
            "forwards. Capture the bare module on one device"
        )


def check_exist(argument: str, devices: Sequence[torch.device]) -> None:
    """Raise ValueError unless this machine has all the devices."""
    if devices[0].type == "cpu":
        return
    count = _module_of(devices[0]).device_count()
    for device in devices:
        if not 0 <= device.index < count:
            raise ValueError(f"{argument} names {device}; this machine has {count} of type {device.type!r}")


def _module_of(device: torch.device) -> Any:
    try:
        return torch.get_device_module(device)
    except RuntimeError as error:
        text = f"device {device} cannot compute; 'cpu' and the accelerators of this machine are allowed"
        raise ValueError(text) from error


def as_stock_id(device: torch.device) -> Any:
    """The index of a device of the default accelerator, as stock keeps it; else the device."""
    if device.type == _get_available_device_type() and device.index is not None:
        return device.index
    return device
