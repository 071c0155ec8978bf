import pytest
import torch

from dpbench.measure.clock import ClockStopwatch, EventStopwatch, make_stopwatch

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")


class FakeCuda:
    """Two devices. An event happens `behind_s` seconds after it was recorded in a stream of the device."""

    def __init__(self):
        self.behind_s = {FIRST: 0.0, SECOND: 0.0}

    def current_stream(self, device):
        return device

    def Event(self, *, enable_timing):
        assert enable_timing
        return FakeEvent(self)


class FakeEvent:
    def __init__(self, cuda):
        self._cuda = cuda

    def record(self, stream):
        self.at_s = self._cuda.behind_s[stream]

    def elapsed_time(self, end):
        return (end.at_s - self.at_s) * 1000


def test_events_are_used_if_all_devices_can_time_them():
    assert isinstance(make_stopwatch([FIRST, SECOND]), EventStopwatch)
    assert isinstance(make_stopwatch([CPU, CPU]), ClockStopwatch)
    assert isinstance(make_stopwatch([FIRST, CPU]), ClockStopwatch)


@pytest.mark.parametrize(("first_s", "second_s"), [(1.0, 3.0), (3.0, 1.0)])
def test_the_time_between_two_marks_is_the_slower_devices(monkeypatch, first_s, second_s):
    cuda = FakeCuda()
    monkeypatch.setattr(torch, "get_device_module", lambda device: cuda)
    watch = make_stopwatch([FIRST, SECOND])
    begin = watch.mark([FIRST, SECOND])
    cuda.behind_s = {FIRST: first_s, SECOND: second_s}
    end = watch.mark([FIRST, SECOND])
    assert watch.between(begin, end) == 3.0


def test_a_mark_may_be_on_some_of_the_devices(monkeypatch):
    cuda = FakeCuda()
    monkeypatch.setattr(torch, "get_device_module", lambda device: cuda)
    watch = EventStopwatch()
    begin = watch.mark([FIRST])
    cuda.behind_s = {FIRST: 0.5, SECOND: 9.0}
    assert watch.between(begin, watch.mark([FIRST])) == 0.5
