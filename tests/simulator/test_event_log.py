"""Recordings written to a file and read back."""

import pytest

from dpbench.records.recording import Allocate, Copy, Free, HostWait, Mark, Operator, Recording, Wait

EVENTS = [
    Mark(id=1, name="forward"),
    Allocate(id=2, device=0, stream=0, address=1 << 40, size_bytes=512),
    Operator(
        id=3,
        name="aten.mm.default",
        device=0,
        stream=0,
        flops=12,
        read_bytes=8,
        written_bytes=4,
        inputs=(1, 2),
        node="MmBackward0",
        line="a.py:1",
    ),
    Copy(id=4, source=0, destination=None, size_bytes=4, stream=0, inputs=(3,)),
    Wait(id=5, stream=1, after=(4,)),
    HostWait(id=6, after=(4,)),
    Free(id=7, device=0, stream=0, address=1 << 40, size_bytes=512),
]


def test_a_file_reads_back_as_it_was_written(tmp_path):
    recording = Recording(devices=2, streams={0: 0, 1: 1, 2: 0}, events=EVENTS)
    recording.write(tmp_path / "events.jsonl")
    again = Recording.read(tmp_path / "events.jsonl")
    assert (again.devices, again.streams, again.events) == (2, {0: 0, 1: 1, 2: 0}, EVENTS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: has no schema number"),
        ('{"schema": 99, "kind": "recording"}\n', ":1: has schema 99, newer than this dpbench knows; allowed: 6"),
        ("not json\n", ":1: "),
        ('HEAD\n{"kind": "Kernel", "id": 1}\n', ":2: not an event; its kind must be one of Operator, Copy, "),
        ('HEAD\n{"kind": "Mark", "id": 1}\n', ":2: .*name"),
        ('HEAD\n{"kind": "Mark"', ":2: "),
    ],
)
def test_an_invalid_file_is_refused_with_its_line(tmp_path, text, message):
    head = '{"schema": 6, "kind": "recording", "devices": 1, "streams": {}}'
    path = tmp_path / "events.jsonl"
    path.write_text(text.replace("HEAD", head))
    with pytest.raises(ValueError, match=message):
        Recording.read(path)
