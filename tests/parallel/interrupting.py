"""Interrupts of a wrapper's training, at chosen and at random moments, and what must hold after each.

Without pytest's fixtures, so that a notebook's kernel can use it.
"""

import copy
import gc
import random
import signal
import sys
import threading
import time
import weakref
from typing import ClassVar

import torch
from torch import nn

from dpbench.parallel.accumulate import Context
from tests.sampling import sampled

# Python itself is not safe there: a `Condition` that is interrupted as it is entered stays locked. Callbacks of weak
# references ignore an interrupt. An `__exit__` that is interrupted before its first line does nothing.
_NOT_INTERRUPTED = (__file__, *(sys.modules[name].__file__ for name in ("threading", "weakref", "_weakrefset")))
_NEVER = Context.__exit__.__code__
SMALL = {"bucket_bytes": 200, "first_bucket_bytes": 64}


class Busy(nn.Module):
    """Multiplies; slower on the lanes' threads. `running` has an entry for each call under way."""

    running: ClassVar[list[int]] = []

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((7,), 0.5))

    def forward(self, x):
        try:
            self.running.append(0)
            if threading.current_thread() is not threading.main_thread():
                time.sleep(0.0003)
            return x * self.scale
        finally:
            self.running.pop()


class Training:
    """Trains a wrapper. `goes_on` compares its step with that of the plain module, and the thread's `state`."""

    def __init__(self, wrap, device="cpu"):
        base = nn.Sequential(nn.Linear(5, 7), Busy(), nn.Tanh(), nn.Linear(7, 7), Busy(), nn.Linear(7, 3))
        self.base, self.plain = base.double().to(device), copy.deepcopy(base).to(device)
        self.wrap, self.wrapper, self.device = wrap, wrap(self.base), torch.device(device)
        self.x = torch.randn(16, 5, dtype=torch.float64).to(device)
        self.before = self.state()

    def state(self):
        module = torch.get_device_module(self.device)
        streams = [] if self.device.type == "cpu" else list(map(module.current_stream, range(module.device_count())))
        return torch.is_grad_enabled(), module.current_device(), [stream.stream_id for stream in streams]

    def wrap_anew(self):
        self.wrapper = self.wrap(self.base)

    def forward(self):
        return self.wrapper(self.x)

    def backward(self, module=None):
        (module or self.wrapper)(self.x).square().sum().backward()

    def accumulate(self):
        with self.wrapper.accumulate():
            self.backward()
        self.backward()

    def goes_on(self):
        assert (Busy.running, self.state()) == ([], self.before)
        with torch.no_grad():  # this would be a race with a copy that the interrupt has left behind
            for parameter in self.base.parameters():
                parameter.mul_(1.001)
        self.plain.load_state_dict(self.base.state_dict())
        for module in (self.wrapper, self.plain):
            module.zero_grad()
            self.backward(module)
        for ours, theirs in zip(self.base.parameters(), self.plain.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)


def interrupt_at(number, call, where=""):
    """Call, and raise KeyboardInterrupt in this thread at the event of that number; return how many events there were.

    An event is a moment at which CPython handles signals: a Python function begins, or a C function has ended. Only
    files whose path has `where` in it count.
    """
    seen = 0

    def on_event(frame, event, _):
        nonlocal seen
        name = frame.f_code.co_filename
        if event in ("call", "c_return") and where in name and not name.startswith(_NOT_INTERRUPTED):
            seen += frame.f_code is not _NEVER
            if seen == number:
                raise KeyboardInterrupt

    ignored, sys.unraisablehook = sys.unraisablehook, lambda _: None  # an interrupt as a generator is closed
    sys.setprofile(on_event)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
        sys.unraisablehook = ignored
    return seen


def interrupt_at_all(training, call, most, where="", prepare=lambda: None):
    """Interrupt the call at each of its events, or at a sample of `most`, and let training go on after each."""
    prepare()
    for number in sampled(range(1, interrupt_at(0, call, where) + 1), most):
        prepare()
        interrupt_at(number, call, where)
        training.goes_on()


def interrupt_at_random(training, count):
    """Interrupt training by SIGINT at random moments, and let it go on after each."""
    draw, raised, main = random.Random(0), 0, threading.main_thread().ident
    for _ in range(count):
        timer = threading.Timer(draw.uniform(0, 0.02), signal.pthread_kill, (main, signal.SIGINT))
        try:
            timer.start()
            while timer.is_alive():
                training.backward()
            time.sleep(1)  # the signal may be under way
        except KeyboardInterrupt:
            raised += 1
        training.goes_on()
    assert raised > 0.9 * count


def lane_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("dp-lane")}


def count_tensors():
    gc.collect()
    return sum(issubclass(type(tracked), torch.Tensor) for tracked in gc.get_objects())


def assert_leaves_nothing(train):
    """Assert that `train`, which returns what has the only wrapper, leaves neither threads nor tensors."""
    tensors, before = count_tensors(), lane_threads()
    left = weakref.ref(train().wrapper)
    assert (count_tensors() <= tensors, left()) == (True, None)
    for thread in lane_threads() - before:
        thread.join(60)
    assert lane_threads() <= before
