import pytest
import torch

from dpbench.doctor.child import bandwidth
from dpbench.doctor.child.bandwidth import copy_seconds, examine_bandwidth
from tests.fakes import ScriptedClock


class SlowTensor:
    """A destination whose copies advance the clock by the given times."""

    def __init__(self, clock, times_s):
        self._clock, self._times_s = clock, iter(times_s)

    def copy_(self, source, non_blocking):
        self._clock.advance(next(self._times_s))


def test_the_time_is_the_median_of_all_copies_but_the_first():
    clock = ScriptedClock()
    assert copy_seconds(SlowTensor(clock, [9.0, 1.0, 2.0, 3.0, 4.0, 50.0]), None, clock) == pytest.approx(3.0)


def test_the_host_has_a_bandwidth_without_any_accelerator():
    (finding,) = examine_bandwidth([], size_bytes=1 << 24)
    assert finding.severity == "ok"
    assert float(finding.value.split(" ")[0].replace(",", "")) > 0


def test_every_direction_of_every_device_is_reported_and_a_failing_one_is_unknown(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(bandwidth, "make_clock", lambda devices: None)
    monkeypatch.setattr(bandwidth, "copy_seconds", lambda *_: 2.0**-20)
    names = [finding.what for finding in examine_bandwidth([torch.device("cpu"), torch.device("meta")], 1 << 10)]
    assert names == [
        "host memory bandwidth",
        *(f"{way} {device} bandwidth" for device in ("cpu", "meta") for way in ("host to", "to host from", "within")),
        "cpu to meta bandwidth",
        "meta to cpu bandwidth",
    ]
    monkeypatch.setattr(bandwidth, "_between", out_of_memory)
    findings = examine_bandwidth([torch.device("cpu"), torch.device("meta")], 1 << 10)
    assert [finding.value for finding in findings[-2:]] == ["unknown: no memory left"] * 2


def out_of_memory(*_):
    raise torch.OutOfMemoryError("no memory left\nand more lines")
