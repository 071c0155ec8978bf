from pathlib import Path

import pytest

from dpbench.records.record import Record
from dpbench.records.row import to_line
from dpbench.records.store import Contents, Store, StoreError, read_rows, retried_path, take_failed_out
from tests.records.making import case, failed, ok

GOOD, MORE = ok(case("tuned"), 0), ok(case("naive"), 1)
CRASHED, TIMED_OUT = failed(case("naive"), 0, "crashed", "SIGSEGV"), failed(case("tuned"), 1, "time_out", "60 s")


def all_records(_: Record) -> bool:
    return True


def store_of(folder: Path, *records: Record) -> Store:
    store = Store(folder / "run.jsonl")
    for record in records:
        store.append(record)
    return store


def test_failed_records_leave_the_file_and_are_kept_beside_it(tmp_path: Path) -> None:
    with store_of(tmp_path, GOOD, CRASHED, MORE, TIMED_OUT) as store:
        assert take_failed_out(store, all_records) == (CRASHED, TIMED_OUT)
        assert read_rows(store.path, Record) == Contents((GOOD, MORE))
        store.append(ok(CRASHED.case, CRASHED.round))
    keys = [record.key for record in read_rows(store.path, Record).rows]
    assert len(keys) == len(set(keys)) == 3
    assert retried_path(store).read_bytes() == to_line(CRASHED) + to_line(TIMED_OUT)


def test_a_second_retry_adds_to_what_was_kept(tmp_path: Path) -> None:
    with store_of(tmp_path, CRASHED) as store:
        take_failed_out(store, all_records)
        store.append(CRASHED)
        take_failed_out(store, all_records)
    assert read_rows(retried_path(store), Record) == Contents((CRASHED, CRASHED))


def test_records_not_asked_for_stay(tmp_path: Path) -> None:
    with store_of(tmp_path, CRASHED, TIMED_OUT) as store:
        assert take_failed_out(store, lambda record: record.key == TIMED_OUT.key) == (TIMED_OUT,)
        assert read_rows(store.path, Record) == Contents((CRASHED,))


def test_without_failures_nothing_is_written(tmp_path: Path) -> None:
    with store_of(tmp_path, GOOD) as store:
        before = store.path.stat()
        assert take_failed_out(store, all_records) == ()
        assert store.path.stat() == before
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def test_what_cannot_be_kept_does_not_leave(tmp_path: Path) -> None:
    with store_of(tmp_path, GOOD, CRASHED) as store:
        retried_path(store).mkdir()
        with pytest.raises(StoreError, match="retried"):
            take_failed_out(store, all_records)
        assert read_rows(store.path, Record) == Contents((GOOD, CRASHED))
