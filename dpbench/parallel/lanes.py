"""The verbs of devices and streams, the same for the CPU and for every accelerator.

The module of a device type (``torch.get_device_module``) must offer ``Stream``, ``Event``, ``current_stream``,
``stream`` and ``device`` as ``torch.cuda`` does. On the CPU work is done when its call returns, so that its
verbs do nothing.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

Stream = Any
"""A stream of the device's own module; None on the CPU."""


def current_stream(device: torch.device) -> Stream:
    return None if device.type == "cpu" else torch.get_device_module(device).current_stream(device)


def use_device(device: torch.device) -> AbstractContextManager[Any]:
    return nullcontext() if device.type == "cpu" else torch.get_device_module(device).device(device)


def use_stream(device: torch.device, stream: Stream) -> AbstractContextManager[Any]:
    return nullcontext() if stream is None else torch.get_device_module(device).stream(stream)
