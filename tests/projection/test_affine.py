"""Recordings at small batches, merged to a step at any batch, and its file."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from dpbench.projection.affine import NotAffineError, merge
from dpbench.projection.affine_step import KINDS, AffineStep
from dpbench.results.recording import (
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


def test_a_step_at_any_batch_has_the_numbers_of_a_recording_there():
    step = merged()
    assert [KINDS[kind] for kind in step.kind] == ["Copy", "Wait", "HostCall", "Operator", "Operator", "GradientReady"]
    assert step.at("flops", 100).tolist() == [0, 0, 0, 700, 3, 0]
    assert step.at("size_bytes", 100).tolist() == [400, 0, 0, 0, 0, 8]
    assert step.read_bytes[3].tolist() == [5, 2]
    assert [step.texts[phase] for phase in step.phase] == ["forward"] * 5 + ["backward"]
    assert (step.stream_devices, step.batches, step.not_affine, step.model) == ((0, 1, 1), (4, 6, 8), (), MODEL)
    assert step.thread.tolist() == [0, 0, 0, 1, 2, 0]


def test_ids_are_numbered_anew_and_earlier_events_left_out():
    step = merged()
    needed = np.split(step.references, step.reference_starts[1:-1])
    assert [each.tolist() for each in needed] == [[], [0], [], [], [0], []]


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
    for name, value in vars(step).items():
        assert (
            np.array_equal(getattr(again, name), value)
            if isinstance(value, np.ndarray)
            else getattr(again, name) == value
        )


def changed(content, **fields):
    return {**content, **fields}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: changed(c, format="other"), "another format"),
        (lambda c: changed(c, version=2), "another format or version"),
        (lambda c: changed(c, extra=1), "its fields are"),
        (lambda c: changed(c, devices="2"), "devices"),
        (lambda c: changed(c, texts=[1]), "texts"),
        (lambda c: changed(c, model={"modules": 1}), "parameter_sizes"),
        (lambda c: changed(c, indices=changed(c["indices"], kind=[0.5] * 6)), "kind is not a list of integers"),
        (lambda c: changed(c, indices=changed(c["indices"], kind=[9] * 6)), "kind has a wrong length or a number"),
        (lambda c: changed(c, indices=changed(c["indices"], stream=[0])), "stream has a wrong length"),
        (lambda c: changed(c, indices=changed(c["indices"], references=[5, 5])), "refers to itself or a later one"),
        (lambda c: changed(c, lines=changed(c["lines"], flops=[[0], [0]])), "a line has a wrong length"),
        (lambda c: changed(c, lines=changed(c["lines"], flops=[[float("nan")] * 6] * 2)), "flops is not two lists"),
        (lambda c: [], "another format"),
    ],
)
def test_a_foreign_file_is_refused_with_its_path_and_the_reason(tmp_path, damage, message):
    path = tmp_path / "step.json.gz"
    merged().write(path)
    content = json.loads(gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(json.dumps(damage(content)).encode()))
    with pytest.raises(ValueError, match=f"step.json.gz: not a dpbench.step file.*{message}"):
        AffineStep.read(path)


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b"", lambda b: b"{}", lambda b: b + b"x"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "step.json.gz"
    merged().write(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"step\.json\.gz: not a dpbench.step file"):
        AffineStep.read(path)
