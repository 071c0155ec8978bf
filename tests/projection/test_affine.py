"""Recordings at small batches, merged to a step at any batch, and its file."""

import gzip
from dataclasses import replace

import pytest

from dpbench.projection.affine import AffineStep, NotAffineError, merge
from dpbench.records.recording import (
    Allocate,
    Copy,
    GradientReady,
    HostCall,
    HostCallName,
    Mark,
    ModelFacts,
    Operator,
    Recording,
    Wait,
)

MODEL = ModelFacts(modules=2, parameters=1, buffers=0, parameter_bytes=8, buffer_bytes=0, parameter_sizes=(8,))


def recorded(batch, offset=10, swapped=False, flops=None):
    """Return a step: a copy to device 1, an operator on each of two threads, and a gradient."""
    lanes = [
        Operator(
            id=offset + 5, name="aten.mm", device=0, stream=0, flops=7 * batch, read_bytes=5 + 2 * batch, thread=1
        ),
        Operator(
            id=offset + 6,
            name="aten.mul",
            device=1,
            stream=1,
            flops=3 if flops is None else flops,
            inputs=(offset + 2, 1),
            node="Mul",
            thread=2,
        ),
    ]
    if swapped:
        lanes = [replace(lanes[1], id=offset + 5), replace(lanes[0], id=offset + 6)]
    events = [
        Mark(id=offset, name="forward"),
        Allocate(id=offset + 1, device=0, stream=0, address=batch, size_bytes=512 * batch),
        Copy(id=offset + 2, source=None, destination=1, size_bytes=4 * batch, stream=1),
        Wait(id=offset + 3, stream=0, after=(offset + 2,)),
        HostCall(id=offset + 4, name=HostCallName.EVENT_RECORD),
        *lanes,
        Mark(id=offset + 7, name="backward"),
        GradientReady(id=offset + 8, parameter=0, size_bytes=8, device=0),
    ]
    return Recording(2, {0: 0, 1: 1, 2: 1}, events, MODEL)


def merged():
    return merge({4: recorded(4), 6: recorded(6, 90, swapped=True), 8: recorded(8, 50)})


def test_a_step_at_any_batch_is_a_recording_there_without_memory_and_lines():
    step = merged()
    wanted = [
        replace(event, line="") if hasattr(event, "line") else event
        for event in recorded(100).events
        if not isinstance(event, Allocate)
    ]
    assert step.at(100).events == wanted
    assert (step.first.streams, step.first.model) == ({0: 0, 1: 1, 2: 1}, MODEL)
    assert (step.batches, step.not_affine) == ((4, 6, 8), ())


def test_an_operator_that_is_not_on_its_line_is_named():
    recordings = {4: recorded(4), 6: recorded(6, flops=3), 8: recorded(8)}
    assert merge(recordings).not_affine == ()
    assert merge({**recordings, 6: recorded(6, flops=4)}).not_affine == ("aten.mul",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda events: events[:-1], r"GradientReady 18 .* at 4, no event at 8"),
        (lambda events: [*events, replace(events[-1], id=99)], r"no event at 4, GradientReady 99"),
        (
            lambda events: [replace(e, name="aten.add") if e.id == 16 else e for e in events],
            "name aten.mul.* at 4, .*aten.add",
        ),
        (lambda events: [replace(e, stream=0) if e.id == 12 else e for e in events], "Copy 12 .*stream 1.* at 4"),
        (lambda events: [replace(e, thread=3) if e.id == 16 else e for e in events], "thread 2"),
    ],
)
def test_other_events_at_another_batch_are_an_error_that_names_the_first(change, message):
    other = recorded(8)
    other.events = change(other.events)
    with pytest.raises(NotAffineError, match=message):
        merge({4: recorded(4), 8: other})


@pytest.mark.parametrize("number", [0, 1, 4])
def test_two_or_three_recordings_are_allowed(number):
    with pytest.raises(ValueError, match="allowed: 2 or 3"):
        merge({batch: recorded(batch) for batch in range(1, number + 1)})


def test_a_file_reads_back_as_it_was_written(tmp_path):
    step = merged()
    step.write(tmp_path / "step.json.gz")
    again = AffineStep.read(tmp_path / "step.json.gz")
    assert again.at(100).events == step.at(100).events
    assert (again.batches, again.not_affine) == (step.batches, step.not_affine)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"dpbench.step"', '"other"', "dpbench.step"),
        ('"version":2', '"version":1', "Input should be 2"),
        ('"batches":[4,6,8]', '"batches":[4]', "another length"),
        ('"flops":[0,', '"flops":[', "another length"),
        ('"flops":[0,', '"flops":[0.5,', "valid integer"),
        ('"kind": "Wait"', '"kind": "wait"', "its recording:4: not an event"),
    ],
)
def test_a_foreign_file_is_refused_with_its_path_and_the_reason(tmp_path, old, new, message):
    path = tmp_path / "step.json.gz"
    merged().write(path)
    text = gzip.decompress(path.read_bytes()).decode()
    assert old in text
    path.write_bytes(gzip.compress(text.replace(old, new, 1).encode()))
    with pytest.raises(ValueError, match=f"(?s)step.json.gz: not a dpbench.step file.*{message}"):
        AffineStep.read(path)


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b"", lambda b: b"{}", lambda b: b + b"x"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "step.json.gz"
    merged().write(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"step\.json\.gz: not a dpbench.step file"):
        AffineStep.read(path)
