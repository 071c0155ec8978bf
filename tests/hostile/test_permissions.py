"""Files and folders that the user may not read, and a current folder that is gone: one line, nothing is written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hostile import attack
from tests.hostile.attack import assert_unharmed, call, matches, new_folder
from tests.hostile.files import counts_file, gate_files, record_line

NOBODY = 65534
EXPORT = ("export", "d/r.jsonl")
RECORDS = {"d/r.jsonl": record_line({})}
MACHINES = {"d/m.json": b'{"version": 1, "m": {"machine": "m", "cpu": "a CPU"}}'}
COUNTS = {"e/torch-2.13.0-py3.11.json": counts_file()}
GATE = ("gate", "--base=HEAD~1", "--tiers=0")
CASES = [
    (("sweep", "d/s.toml"), {"d/s.toml": b""}, "d", 2),
    (("sweep", "s.toml"), {"s.toml": b"", "results/runs/sweep-s.jsonl": b""}, "results/runs/sweep-s.jsonl", 2),
    (("compare", "--results=d/runs"), {"d/x": b""}, "d", 2),
    (EXPORT, RECORDS, "d", 2),
    (EXPORT, RECORDS, "d/r.jsonl", 2),
    (("asv-machine", "--machine-file=d/m.json"), MACHINES, "d", 2),
    (("counts", "--check", "--expected=e"), COUNTS, "e/torch-2.13.0-py3.11.json", 2),
    (("counts", "--events=e/x", "--variants=tuned"), COUNTS, "e", 2),
    ((*GATE, "--settings=g.toml"), gate_files(), "g.toml", 2),
    ((*GATE, "--comment=d/m"), {**gate_files(), "d/x": b""}, "d", 2),
    (("gate", "--base=HEAD~1", "--tiers=2"), {**gate_files(), "results/gate/history.jsonl": b""}, "results/gate", 2),
]


@pytest.mark.parametrize(("words", "files", "hidden", "code"), CASES, ids=lambda value: str(value)[:40])
def test_what_cannot_be_read(words, files, hidden, code, monkeypatch):
    attack.attack(words, files)  # imports everything while that is allowed
    monkeypatch.setattr(attack, "_contents", lambda folder: {})  # it cannot be read either
    with new_folder(files) as folder, as_nobody(folder):
        (folder / hidden).chmod(0)
        try:
            answer = call(words, folder)
        finally:
            (folder / hidden).chmod(0o755)
    assert_unharmed(answer)
    assert answer.code == code, answer
    assert matches(r"cannot be|is not readable", answer), answer


@pytest.mark.parametrize(
    ("words", "code"), [(("list",), 2), (("gate", "--base=main"), 2), (("counts",), 2), (("--version",), 0)]
)
def test_a_folder_that_is_gone(words, code):
    with new_folder() as folder:
        (folder / "gone").mkdir()
        os.chdir(folder / "gone")
        (folder / "gone").rmdir()
        answer = call(words, folder)
    assert_unharmed(answer)
    assert answer.code == code, answer
    assert code == 0 or matches("current directory: .*; allowed: one that exists", answer), answer


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Inside the block this process is a user without rights, if it is root, and owns the folder."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
