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

# CPython itself is not safe there: a `Condition` that is interrupted as it is entered stays locked. Callbacks of weak
# references ignore an interrupt.
_NOT_INTERRUPTED = (__file__, *(sys.modules[name].__file__ for name in ("threading", "weakref", "_weakrefset")))


class Busy(nn.Module):
    """Multiplies; on threads other than the first it takes longer. `running` has an entry for each call under way."""

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
    """Trains a wrapper; `assert_goes_on` compares its step with that of the plain module."""

    def __init__(self, wrap, device="cpu", seed=0):
        generator = torch.Generator().manual_seed(seed)
        base = nn.Sequential(nn.Linear(5, 7), Busy(), nn.Tanh(), nn.Linear(7, 7), Busy(), nn.Linear(7, 3))
        self.base, self.plain = base.double().to(device), copy.deepcopy(base).to(device)
        self.wrapper = wrap(self.base)
        self.x = torch.randn(16, 5, dtype=torch.float64, generator=generator).to(device)

    def backward(self, module=None):
        (self.wrapper if module is None else module)(self.x).square().sum().backward()

    def accumulate(self):
        with self.wrapper.accumulate():
            self.backward()
        self.backward()

    def step(self, how="backward"):
        self.wrapper.zero_grad()
        getattr(self, how)()

    def assert_goes_on(self):
        assert Busy.running == [], "a lane still runs"
        assert torch.is_grad_enabled()
        with torch.no_grad():  # this would be a race with a copy that the interrupt has left behind
            for parameter in self.base.parameters():
                parameter.mul_(1.0 + 1e-3)
        self.plain.load_state_dict(self.base.state_dict())
        for module in (self.wrapper, self.plain):
            module.zero_grad()
            self.backward(module)
        for (name, ours), theirs in zip(self.base.named_parameters(), self.plain.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, msg=lambda text, name=name: f"{name}: {text}")


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
            seen += 1
            if seen == number:
                raise KeyboardInterrupt

    sys.setprofile(on_event)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return seen


def interrupt_after(delay_s, call):
    """Call again and again until SIGINT arrives, after the delay; return whether it was raised."""
    signal_main = threading.Timer(delay_s, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    try:
        signal_main.start()
        while signal_main.is_alive():
            call()
        time.sleep(1)  # the signal may be under way
    except KeyboardInterrupt:
        return True
    return False


def train_with_interrupts(training, count, seed=0):
    """Interrupt training `count` times at random moments, and let it go on after each; return how many were raised."""
    draw, raised = random.Random(seed), 0
    training.step()
    for _ in range(count):
        raised += interrupt_after(draw.uniform(0, 0.02), training.step)
        training.assert_goes_on()
    return raised


def lane_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("dp-lane")}


def count_tensors():
    gc.collect()
    return sum(isinstance(each, torch.Tensor) for each in gc.get_objects())


def assert_leaves_nothing(train):
    """Assert that `train`, which makes a wrapper, leaves neither threads nor tensors nor modules."""
    gc.collect()
    before, tensors = lane_threads(), count_tensors()
    left = weakref.ref(train().wrapper)
    gc.collect()
    assert left() is None
    for thread in lane_threads() - before:
        thread.join(60)
    assert lane_threads() <= before
    assert count_tensors() <= tensors
