"""A sweep's file that somebody changes while it is written: the end says what the file lacks."""

import os

import pytest

from dpbench.processes.run_sweep import _lost_warning
from dpbench.records.store import Store
from tests.records.making import case, thin

RECORDS = [thin(case("tuned"), number, (0.1,)) for number in range(4)]
CHANGES = {
    "nothing": (lambda path: None, 0),
    "cut in the middle of a line": (lambda path: os.truncate(path, path.stat().st_size - 10), 1),
    "emptied": (lambda path: os.truncate(path, 0), 4),
    "removed": (lambda path: path.unlink(), 4),
    "replaced": (lambda path: (path.unlink(), path.write_text("{}\n")), 4),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), 4),
    "read-only, which stops no open file": (lambda path: path.chmod(0o400), 0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_file_lacks_is_one_line(tmp_path, name):
    change, lost = CHANGES[name]
    with Store(tmp_path / "r.jsonl") as store:
        for record in RECORDS:
            store.append(record)
        change(store.path)
        found = _lost_warning(store, RECORDS)
    assert len(found) == (lost > 0)
    assert all(f"lacks {lost} of 4 records, such as {RECORDS[4 - lost].case.id}, round" in line for line in found)
