import fcntl
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpbench.records.record import Record
from dpbench.records.row import SCHEMA, to_line
from dpbench.records.store import Contents, Store, StoreError, read_rows
from tests.records.making import case, ok

A, B, C = (ok(case(), number) for number in range(3))


def file_of(folder: Path, content: bytes) -> Path:
    path = folder / "run.jsonl"
    path.write_bytes(content)
    return path


def appended(path: Path, *records: object) -> None:
    with Store(path) as store:
        for record in records:
            store.append(record)


def test_what_is_appended_is_read_in_order_also_by_another_store(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    appended(path, A, B)
    appended(path, C)
    assert read_rows(path, Record) == Contents((A, B, C))
    assert path.read_bytes() == to_line(A) + to_line(B) + to_line(C)


def test_each_record_is_on_disk_when_append_returns(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.jsonl")
    for number, record in enumerate((A, B, C), start=1):
        store.append(record)
        assert len(read_rows(store.path, Record).rows) == number
    store.close()


def test_a_file_torn_anywhere_in_its_last_line_keeps_the_others_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # a thousand syncs take long
    whole, last = to_line(A) + to_line(B), to_line(C)
    for kept_bytes in range(1, len(last)):
        path = file_of(tmp_path, whole + last[:kept_bytes])
        warning = f"{path}: a torn line of {kept_bytes} bytes at the end was dropped"
        assert read_rows(path, Record) == Contents((A, B), (warning,))
        with Store(path) as store:
            assert read_rows(store.path, Record) == Contents((A, B), (warning,))
            store.append(C)
        assert path.read_bytes() == whole + last


@pytest.mark.parametrize("torn", [b"{", b"\0" * 5000, b"\0" * 65_535, b'{"schema":' + b"x" * 200_000])
def test_a_torn_end_of_any_length_is_cut_before_the_next_record(tmp_path: Path, torn: bytes) -> None:
    # The file is searched in blocks of 65,536 bytes: one of these ends has its newline first in its block.
    for whole in (b"", to_line(A)):
        path = file_of(tmp_path, whole + torn)
        appended(path, B)
        assert path.read_bytes() == whole + to_line(B)


@pytest.mark.parametrize("notes", [b"milk, eggs, bread; call mother", b"x" * 200_000, b'{"mine": 1}', b"a\nb"])
def test_a_file_that_dpbench_did_not_write_is_refused_and_stays(tmp_path: Path, notes: bytes) -> None:
    path = file_of(tmp_path, notes)
    with pytest.raises(StoreError, match=f"{path}: cannot be written: not written by dpbench; allowed: a file that"):
        appended(path, A)
    assert path.read_bytes() == notes


def test_a_torn_end_stays_if_a_line_before_it_is_bad(tmp_path: Path) -> None:
    content = to_line(A) + b"{\n" + to_line(B)[:30]
    path = file_of(tmp_path, content)
    with Store(path) as store, pytest.raises(StoreError, match="line 2 is not JSON"):
        read_rows(store.path, Record)
    assert path.read_bytes() == content


def test_a_link_is_refused_and_its_file_stays(tmp_path: Path) -> None:
    content = to_line(A) + to_line(B)[:30]
    link, target = tmp_path / "link.jsonl", file_of(tmp_path, content)
    link.symlink_to(target)
    with pytest.raises(StoreError, match=f"{link}: cannot be written: a symbolic link; allowed: a regular file"):
        appended(link, A)
    assert target.read_bytes() == content


def test_replacing_leaves_other_files_in_the_folder_alone(tmp_path: Path) -> None:
    beside = tmp_path / "run.jsonl.new"
    beside.write_bytes(b"notes")
    with Store(tmp_path / "run.jsonl") as store:
        store.replace([A])
    assert beside.read_bytes() == b"notes"


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    assert read_rows(file_of(tmp_path, b""), Record) == Contents(())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"{\n", "line 2 is not JSON"),
        (b"\n", "line 2 is not JSON"),
        (to_line(C)[:50] + b"\n", "line 2 is not JSON"),
        (b'{"schema": %d}\n' % (SCHEMA + 1), f"line 2 has schema {SCHEMA + 1}, newer than"),
    ],
)
def test_a_bad_line_that_is_no_torn_end_is_an_error_with_file_and_number(
    tmp_path: Path, bad: bytes, message: str
) -> None:
    for after in (b"", to_line(B)):
        path = file_of(tmp_path, to_line(A) + bad + after)
        with pytest.raises(StoreError, match=f"{path}: {message}"):
            read_rows(path, Record)


def test_reading_an_absent_file_is_an_error_and_makes_none(tmp_path: Path) -> None:
    path = tmp_path / "absent.jsonl"
    with pytest.raises(StoreError, match=f"{path}: cannot be read: No such file"):
        read_rows(path, Record)
    assert not path.exists()


@pytest.mark.parametrize("name", ["file/run.jsonl", "absent/run.jsonl", "folder"])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match=f"{tmp_path / name}: cannot be written: "):
        Store(tmp_path / name).append(A)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Like a disk that fills up: writes past `size` are short, then fail."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


@pytest.mark.parametrize("spare", [0, 1, 100])
def test_a_full_disk_leaves_the_old_records_whole(tmp_path: Path, spare: int) -> None:
    path = tmp_path / "run.jsonl"
    with Store(path) as store:
        store.append(A)
        before = path.read_bytes()
        with room_for(len(before) + spare), pytest.raises(StoreError) as caught:
            store.append(B)
        assert path.read_bytes() == before
        store.append(C)
    assert read_rows(path, Record) == Contents((A, C))
    reason = f"{spare} of the {len(to_line(B))} bytes of a line fit" if spare else "File too large"
    assert str(caught.value) == f"{path}: cannot be written: {reason}"


def test_a_record_that_cannot_be_synced_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"

    def failing(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with Store(path) as store:
        store.append(A)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing)
            with pytest.raises(StoreError, match="cannot be written: Input/output error"):
                store.append(B)
    assert read_rows(path, Record) == Contents((A,))


def test_every_record_and_the_name_of_the_file_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "run.jsonl", list[str]()
    fsync = os.fsync

    def noting(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noting)
    appended(path, A, B)
    assert synced == [str(tmp_path), str(path), str(path)]


def test_a_record_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = list[bytes]()
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: writes.append(data) or write(fd, data))
    appended(tmp_path / "run.jsonl", A, B)
    assert writes == [to_line(A), to_line(B)]


WRITER = """
import sys
from pathlib import Path
from dpbench.records.store import Store, StoreError
try:
    Store(Path(sys.argv[1])).__enter__()
except StoreError as error:
    print(error)
"""


def test_a_second_writer_is_refused_until_the_first_is_done_and_readers_never_are(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    command = [sys.executable, "-c", WRITER, str(path)]
    with Store(path) as store:
        store.append(A)
        second = subprocess.run(command, capture_output=True, text=True, check=True)
        assert second.stdout.strip() == f"{path}: cannot be written: another process is writing it; allowed: one writer"
        assert read_rows(path, Record) == Contents((A,))
        with pytest.raises(StoreError, match="another process"):
            Store(path).append(B)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""
    assert read_rows(path, Record) == Contents((A,))


def test_a_replaced_file_has_the_new_records_alone_and_takes_more(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Store(path) as store:
        for record in (A, B):
            store.append(record)
        store.replace([B])
        assert read_rows(store.path, Record) == Contents((B,))
        store.append(C)
    assert path.read_bytes() == to_line(B) + to_line(C)
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def test_a_replaced_file_keeps_other_writers_out_also_who_opened_it_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    other, flock = Store(path), fcntl.flock

    def replaced_meanwhile(fd: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        with Store(path) as store:
            store.append(A)
            store.replace([A])
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", replaced_meanwhile)
    with pytest.raises(StoreError, match="another process"):
        other.append(B)
    assert read_rows(path, Record) == Contents((A,))
    other.append(B)
    with pytest.raises(StoreError, match="another process"):
        Store(path).append(C)
    other.close()


@pytest.mark.parametrize("spare", [0, 1, 100])
def test_a_full_disk_leaves_the_old_file_where_a_new_one_was_wanted(tmp_path: Path, spare: int) -> None:
    path = file_of(tmp_path, to_line(A) + to_line(B))
    with Store(path) as store, room_for(len(to_line(A)) + spare), pytest.raises(StoreError, match="anew"):
        store.replace([A, B])
    assert read_rows(path, Record) == Contents((A, B))
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def test_children_do_not_inherit_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Store(path) as store:
        store.append(A)
        listed = subprocess.run(
            ["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True, close_fds=False
        )
    assert str(path) not in listed.stdout
