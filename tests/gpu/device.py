"""The device of the tests in this folder: one GPU, shared by all lanes.

With ``DPBENCH_GPU_TESTS_ON=cpu`` the same tests run on lanes of the CPU. This dry run finds mistakes in the tests on a
machine without a GPU. It has no streams and no pauses, so it proves nothing about streams.
"""

import os
from contextlib import contextmanager

import pytest
import torch
from torch.cuda import current_device
from torch.nn.modules.module import register_module_forward_pre_hook

from dpbench.parallel import DataParallel, Policy

IS_DRY_RUN = os.environ.get("DPBENCH_GPU_TESTS_ON") == "cpu"
DEVICE = torch.device("cpu") if IS_DRY_RUN else torch.device("cuda", 0)
LAG_S = 0.002
SHORT, LONG = 10_000_000, 600_000_000
"""Cycles: about 5 and 300 ms. Issuing a whole step takes a few ms."""

# Streams that share a hardware queue wait for each other. By default there are 8 queues (CUDA C++ Programming Guide).
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

needs_streams = pytest.mark.skipif(IS_DRY_RUN, reason="a dry run on the CPU has no streams")


def skip_without_gpu() -> None:
    if not IS_DRY_RUN and not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device; `make gpu` runs these on one", allow_module_level=True)


def is_stand_in() -> bool:
    """Whether the GPU is that of tests/cuda_stand_in."""
    return not IS_DRY_RUN and torch.cuda.get_device_name(DEVICE) == "dpbench CUDA stand-in"


def wrap(base, lanes, **policy):
    devices = ["cpu" if IS_DRY_RUN else 0] * lanes
    return DataParallel(base, devices, policy=Policy(**{"dispatch": "sequence", **policy}))


def synchronize():
    for index in range(0 if IS_DRY_RUN else torch.cuda.device_count()):
        torch.cuda.synchronize(index)


def on_host(tensor):
    """Return the tensor in pinned memory, from which copies do not block."""
    return tensor.cpu() if IS_DRY_RUN else tensor.cpu().pin_memory()


class Moment:
    """The end of the current stream's work.

    In a dry run a pause never ends, and all else is over at once.
    """

    def __init__(self, is_pause=False):
        self._is_pause = is_pause
        self._event = None
        if not IS_DRY_RUN:
            self._event = torch.cuda.Event()
            self._event.record()

    def has_come(self):
        return not self._is_pause if self._event is None else self._event.query()

    def wait(self):
        if self._event is not None:
            self._event.synchronize()


def pause(cycles=SHORT):
    """Let the current stream pause for so many cycles. Return the moment at which it goes on."""
    if not IS_DRY_RUN:
        torch.cuda._sleep(cycles)
    return Moment(is_pause=True)


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
