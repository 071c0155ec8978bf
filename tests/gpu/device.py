"""The device of the tests in this folder: one GPU, shared by all lanes. It may be that of the stand-in for CUDA."""

import os
from contextlib import contextmanager

import pytest
import torch
from torch.cuda import current_device
from torch.nn.modules.module import register_module_forward_pre_hook

from dpbench.parallel import DataParallel, Policy

DEVICE = torch.device("cuda", 0)
LAG_S = 0.002
SHORT, LONG = 10_000_000, 600_000_000
"""Cycles: about 5 and 300 ms. Issuing a whole step takes a few ms."""

# Streams that share a hardware queue wait for each other. By default there are 8 queues (CUDA C++ Programming Guide).
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


def skip_without_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device; `make gpu` runs these on one", allow_module_level=True)


def is_stand_in() -> bool:
    """Whether the GPU is that of tests/cuda_stand_in."""
    return torch.cuda.get_device_name(DEVICE) == "dpbench CUDA stand-in"


def wrap(base, lanes, **policy):
    return DataParallel(base, [0] * lanes, policy=Policy(**{"dispatch": "sequence", **policy}))


def synchronize():
    for index in range(torch.cuda.device_count()):
        torch.cuda.synchronize(index)


def on_host(tensor):
    """Return the tensor in pinned memory, from which copies do not block."""
    return tensor.cpu().pin_memory()


class Moment:
    """The end of the current stream's work."""

    def __init__(self):
        self._event = torch.cuda.Event()
        self._event.record()
        self.has_come, self.wait = self._event.query, self._event.synchronize


def pause(cycles=SHORT):
    """Let the current stream pause for so many cycles. Return the moment at which it goes on."""
    torch.cuda._sleep(cycles)
    return Moment()


@contextmanager
def lagging(devices):
    """Slow these devices in a block, so that everything that should wait for them has to wait.

    On GPUs each module's forward begins with a pause of its device. On the CUDA stand-in each kernel and copy is slow.
    """
    if is_stand_in():
        from tests.cuda_stand_in import control  # it loads the stand-in's library

        with control.lagging(dict.fromkeys(devices, LAG_S)):
            yield
        return

    def pause_here(*_):
        if current_device() in devices:
            pause()

    handle = register_module_forward_pre_hook(pause_here)
    try:
        yield
    finally:
        handle.remove()
