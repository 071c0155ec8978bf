import subprocess
import sys

import torch

from dpbench.measure import memory
from dpbench.measure.memory import (
    peak_device_bytes,
    peak_in_status_bytes,
    peak_reserved_bytes,
    peak_rss_bytes,
    ready_for_copies,
)
from dpbench.measure.sample import Window
from dpbench.records.readings import Reading

STATUS = """\
Name:	python
VmPeak:	 8123456 kB
VmHWM:	  123456 kB
VmRSS:	   99999 kB
"""


def test_the_peak_is_read_from_the_status():
    assert peak_in_status_bytes(STATUS) == 123456 * 1024
    assert peak_in_status_bytes("Name:	python\nState:	Z (zombie)\n") == 0


def test_memory_is_pinned_for_cuda_alone(monkeypatch):
    host, pinned = torch.zeros(2), torch.ones(2)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned if tensor is host else None)
    assert ready_for_copies(host, torch.device("cuda", 1)) is pinned
    assert all(ready_for_copies(host, torch.device(name)) is host for name in ("cpu", "xpu:0", "privateuseone:0"))


def test_child_processes_count_with_their_own_peaks():
    before = peak_rss_bytes()
    code = "held = bytearray(64 * 2**20); held = None; print(flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    assert peak_rss_bytes() >= before + 64 * 2**20
    child.communicate(b"\n")
    assert peak_rss_bytes() < before + 64 * 2**20


class Allocator:
    """A fake device module with memory statistics."""

    def __init__(self, peak_bytes: int) -> None:
        self.peak_bytes = peak_bytes

    def reset_peak_memory_stats(self, device):
        self.peak_bytes = 0

    def max_memory_allocated(self, device):
        return self.peak_bytes


class NoTelemetry:
    def begin(self):
        pass

    def end(self, steps):
        return {"cuda:0": f"none of {steps} steps"}


def test_peaks_are_those_of_the_window(monkeypatch):
    allocator = Allocator(999)
    monkeypatch.setattr(torch, "get_device_module", lambda device: allocator)
    window = Window([torch.device("cuda:0")] * 2, NoTelemetry())
    window.begin()
    allocator.peak_bytes += 5
    window.end(7)
    assert window.peak_device_bytes == {"cuda:0": Reading(value=5)}
    assert window.peak_reserved_bytes == {"cuda:0": Reading(reason="torch.cuda has no max_memory_reserved")}
    assert window.telemetry == {"cuda:0": "none of 7 steps"}
    assert window.peak_rss_bytes > 0


def test_a_device_without_an_allocator_of_its_own_has_reasons():
    cpu = [torch.device("cpu")] * 2
    memory.reset_device_peaks(cpu)
    assert peak_device_bytes(cpu) == {"cpu": Reading(reason="torch.cpu has no max_memory_allocated")}
    assert peak_reserved_bytes(cpu) == {"cpu": Reading(reason="torch.cpu has no max_memory_reserved")}
