import re
from pathlib import Path

import pytest

from dpbench.records import store
from dpbench.records.record import Record
from dpbench.records.store import Contents, StoreError, new_run_path, read_rows


def test_names_tell_command_and_time_and_folders_are_made(tmp_path: Path) -> None:
    path = new_run_path(tmp_path / "a" / "b", "compare")
    assert path.parent == tmp_path / "a" / "b"
    assert re.fullmatch(r"compare-\d{8}T\d{6}Z(-\d+)?\.jsonl", path.name)
    assert read_rows(path, Record) == Contents(())


def test_no_name_is_given_twice_even_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(store.datetime):
        @classmethod
        def now(cls, tz: object = None) -> "Stopped":
            return cls(2025, 1, 31, 12, 0, 0, tzinfo=tz)

    monkeypatch.setattr(store, "datetime", Stopped)
    names = [new_run_path(tmp_path, "sweep").name for _ in range(3)]
    assert names == [f"sweep-20250131T120000Z{suffix}.jsonl" for suffix in ("", "-2", "-3")]


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError) as caught:
        new_run_path(tmp_path / name, "compare")
    line = str(caught.value)
    assert line.startswith(f"results: '{tmp_path / name}' cannot be written: ")
    assert line.endswith("; allowed: a folder that can be written")


def test_a_read_only_file_system_is_named_too() -> None:
    with pytest.raises(StoreError, match="results: '/proc' cannot be written: "):
        new_run_path(Path("/proc"), "compare")
