"""Counters of a recording of simulated devices."""

from dpbench.measure.simulated_counts import count_phase, counts_by_phase, events_by_phase
from dpbench.records.count_record import Phase, Traffic
from dpbench.records.recording import Allocate, Copy, Mark, Operator, Recording

BEFORE = Operator(id=1, name="aten.mm.default", device=0, stream=0)
FORWARD = [
    Operator(id=3, name="aten.mm.default", device=0, stream=0, flops=24),
    Operator(id=4, name="aten.view.default", device=0, stream=0, is_launched=False),
    Allocate(id=5, device=1, stream=1, address=0, size_bytes=512),
    Copy(id=6, source=0, destination=1, size_bytes=40, stream=0),
    Copy(id=7, source=0, destination=1, size_bytes=2, stream=0),
    Copy(id=8, source=None, destination=1, size_bytes=8, stream=1),
    Copy(id=9, source=1, destination=None, size_bytes=4, stream=1),
]
BACKWARD = [Operator(id=11, name="aten.mm.default", device=1, stream=1, flops=12)]
EVENTS = [BEFORE, Mark(id=2, name="forward"), *FORWARD, Mark(id=10, name="backward"), *BACKWARD]


def test_events_belong_to_the_mark_before_them():
    phases = events_by_phase(Recording(devices=2, events=EVENTS))
    assert phases == {Phase.FORWARD: FORWARD, Phase.BACKWARD: BACKWARD}


def test_counts_of_a_recording_are_those_of_its_phases():
    counts = counts_by_phase(Recording(devices=2, events=EVENTS), [{"sim:1": 512}, {}])
    assert counts == {Phase.FORWARD: count_phase(FORWARD, {"sim:1": 512}), Phase.BACKWARD: count_phase(BACKWARD, {})}


def test_operators_kernels_and_copies_by_link():
    counts = count_phase(FORWARD, {"sim:1": 512})
    assert (counts.operators, counts.kernels, counts.flops, counts.allocations) == (6, 1, 24, 1)
    assert counts.copies == {
        "host->sim:1": Traffic(count=1, size_bytes=8),
        "sim:0->sim:1": Traffic(count=2, size_bytes=42),
        "sim:1->host": Traffic(count=1, size_bytes=4),
    }
    assert list(counts.copies) == sorted(counts.copies)
    assert counts.peak_bytes == {"sim:1": 512}
    assert (counts.python_calls, counts.collectives) == (None, None)


def test_a_phase_without_copies_has_an_empty_dict_and_not_none():
    assert count_phase(BACKWARD, {}).copies == {}
