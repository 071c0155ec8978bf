"""Lines of the history: how they are made, written and read."""

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpbench.gate.history import check_appendable, history_line, history_path, read_history, read_records
from dpbench.gate.judgement import Verdict
from dpbench.records.row import SCHEMA, to_line
from dpbench.records.store import Contents, Store, StoreError, append_row
from dpbench.text.files import open_locked
from tests.elastic.making import made_records
from tests.gate.making_history import line, times
from tests.records.making import ENVIRONMENT, case, ok
from tests.report.gate.making_gate import judged, ratio, time, unmeasured

A, B, C = (line("a" * 40, head, times("wide", 0.1, 0.2)) for head in ("b" * 40, "c" * 40, None))


def file_of(folder: Path, content: bytes) -> Path:
    path = folder / "history.jsonl"
    path.write_bytes(content)
    return path


def test_appended_lines_are_read_in_order(tmp_path: Path) -> None:
    path = history_path(tmp_path / "results")
    assert path == tmp_path / "results" / "gate" / "history.jsonl"
    for number, gate_line in enumerate((A, B, C), start=1):
        append_row(path, gate_line)
        assert len(read_history(path).rows) == number
    assert read_history(path) == Contents((A, B, C))
    assert path.read_bytes() == to_line(A) + to_line(B) + to_line(C)
    assert json.loads(path.read_text().splitlines()[0])["schema"] == SCHEMA


def test_no_file_is_no_history(tmp_path: Path) -> None:
    assert read_history(tmp_path / "no.jsonl") == Contents(())


def test_a_torn_end_is_dropped_with_a_warning_and_cut_before_the_next_line(tmp_path: Path) -> None:
    path = file_of(tmp_path, to_line(A) + to_line(B)[:30])
    assert read_history(path) == Contents((A,), (f"{path}: a torn line of 30 bytes at the end was dropped",))
    append_row(path, C)
    assert path.read_bytes() == to_line(A) + to_line(C)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{\n", "is not JSON"),
        (b"[]\n", "has no schema number; allowed: 6"),
        (b'{"schema": true}\n', "has no schema number"),
        (b'{"schema": 7}\n', "has schema 7, newer than this dpbench knows; allowed: 6"),
        (b'{"schema": 6, "kind": "gate"}\n', "is no gate: started_at: missing"),
        (to_line(B).replace(b"0.1", b"-1"), "is no gate: benchmarks.0.base_step_s: Input should be greater"),
        (to_line(B).replace(b"0.1", b"NaN"), "is no"),
    ],
)
def test_a_bad_line_raises_with_file_and_number(tmp_path: Path, bad: bytes, reason: str) -> None:
    path = file_of(tmp_path, to_line(A) + bad + to_line(B))
    with pytest.raises(StoreError) as caught:
        read_history(path)
    assert str(caught.value).startswith(f"{path}: line 2 {reason}")
    assert "\n" not in str(caught.value)


def test_a_file_of_somebody_else_is_refused_before_the_gate_and_stays(tmp_path: Path) -> None:
    notes, link = file_of(tmp_path, b"milk, eggs, bread; call mother"), tmp_path / "link.jsonl"
    link.symlink_to(notes)
    for path, reason in ((notes, "not written by dpbench"), (link, "a symbolic link")):
        for refuse in (check_appendable, lambda path: append_row(path, A)):
            with pytest.raises(StoreError, match=f"^{path}: cannot be written: {reason}; allowed: "):
                refuse(path)
    assert notes.read_bytes() == b"milk, eggs, bread; call mother"
    good = tmp_path / "good.jsonl"
    append_row(good, A)
    check_appendable(good)
    assert read_history(good) == Contents((A,))


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Simulate a full disk: writes past `size` bytes are short, then fail."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


@pytest.mark.parametrize("spare", [0, 20])
def test_a_full_disk_leaves_the_lines_before_whole(tmp_path: Path, spare: int) -> None:
    path = file_of(tmp_path, to_line(A))
    reason = f"{spare} of the {len(to_line(B))} bytes of a line fit" if spare else "File too large"
    with room_for(len(to_line(A)) + spare), pytest.raises(StoreError) as caught:
        append_row(path, B)
    assert str(caught.value) == f"{path}: cannot be written: {reason}"
    assert path.read_bytes() == to_line(A)


@pytest.mark.parametrize("name", ["file/history.jsonl", "folder"])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match=f"^{tmp_path / name}: cannot be written: "):
        append_row(tmp_path / name, A)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"^{tmp_path}: cannot be read: Is a directory$"):
        read_history(tmp_path)


def test_a_line_is_one_write_and_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "history.jsonl", list[object]()
    write, fsync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda fd, data: seen.append(data) or write(fd, data))
    monkeypatch.setattr(os, "fsync", lambda fd: seen.append(os.readlink(f"/proc/self/fd/{fd}")) or fsync(fd))
    append_row(path, A)
    assert seen[-2:] == [to_line(A), str(path)]


WRITER = """
import sys
from pathlib import Path
from dpbench.records.store import append_row
from tests.gate.making_history import line, times
for number in range(20):
    append_row(Path(sys.argv[1]), line("a", sys.argv[2], times("wide", 1, 2)), 5.0)
"""


def test_two_gates_that_append_at_once_lose_no_line(tmp_path: Path) -> None:
    path, root = tmp_path / "history.jsonl", Path(__file__).parents[2]
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], cwd=root) for name in ("b", "c")]
    assert [writer.wait() for writer in writers] == [0, 0]
    heads = [gate_line.head_commit for gate_line in read_history(path).rows]
    assert (heads.count("b"), heads.count("c")) == (20, 20)


def test_a_file_that_another_process_locks_is_awaited_and_then_raises(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    fd = open_locked(path)
    with pytest.raises(StoreError, match="cannot be written: another process is writing it; allowed: one writer"):
        append_row(path, A)
    closing = threading.Timer(0.2, os.close, [fd])
    closing.start()
    append_row(path, A, 60.0)
    closing.join()
    assert read_history(path) == Contents((A,))


def test_records_are_read_from_all_files_and_rows_of_other_kinds_are_not(tmp_path: Path) -> None:
    records = [ok(case(), number) for number in range(3)]
    for name, record in zip(("runs/one.jsonl", "runs/deep/gate/two.jsonl", "three.jsonl"), records, strict=True):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        with Store(tmp_path / name) as store:
            store.append(record)
    append_row(history_path(tmp_path), A)
    (tmp_path / "runs/elastic.jsonl").write_bytes(b"".join(map(to_line, made_records())))
    read, notes = read_records(tmp_path)
    assert sorted(record.round for record in read) == [0, 1, 2]
    assert notes == ()


def test_a_file_without_records_is_a_note_and_the_others_are_read(tmp_path: Path) -> None:
    file_of(tmp_path, b"{}\n")
    with Store(tmp_path / "run.jsonl") as store:
        store.append(ok(case(), 0))
    with (tmp_path / "run.jsonl").open("ab") as file:
        file.write(b"torn")
    read, notes = read_records(tmp_path)
    assert len(read) == 1
    assert notes == (
        f"{tmp_path}/history.jsonl: line 1 has no schema number; allowed: 6; the history goes without it",
        f"{tmp_path}/run.jsonl: a torn line of 4 bytes at the end was dropped",
    )
    assert read_records(tmp_path / "absent") == ((), ())


def test_the_line_of_a_gate_has_the_benchmarks_that_were_measured():
    judgement = judged("slower", times=(time("a", "slower", ratio=ratio(1.2)), unmeasured("b", "undecided"), time("c")))
    line = history_line(judgement, {"a": "case of a", "c": "case of c"}, {"a": True})
    assert (line.verdict, line.started_at, line.environment) == (Verdict.SLOWER, judgement.started_at, ENVIRONMENT)
    assert (line.base_commit, line.head_commit) == (judgement.base.commit, judgement.head.commit)
    a, c = line.benchmarks
    assert (a.name, a.case, a.ratio, a.rounds, a.twin_alarmed) == ("a", "case of a", 1.2, 24, True)
    assert (a.base_step_s, a.head_step_s) == (0.010, 0.0101)
    assert (c.name, c.twin_alarmed) == ("c", None)
