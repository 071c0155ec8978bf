"""What a command may write, and where: nothing that is needed, and through no link that a commit made."""

import os
import re

import pytest

from dpbench.errors import WrongInputError
from dpbench.records.row import Row
from dpbench.records.store import StoreError, append_row
from dpbench.text.files import open_locked, replace_text
from dpbench.text.outputs import check_output, check_output_folder


def contents(folder):
    return {path.name: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("input.toml", "it is an input of this command"),
        ("./hard-link", "it is an input of this command"),
        ("later.jsonl", "it is an input of this command"),
        ("lines.jsonl", "it is a file of records"),
        ("indented.json", "it is a file of records"),
        ("self-test.json", "it is a file of records"),
        ("projection.json", "it is a file of records"),
        ("folder", "Is a directory"),
        ("none/x", "No such file or directory"),
        ("input.toml/x", "Not a directory"),
        ("fifo", "not a regular file"),
        ("9" * 256, "File name too long"),
    ],
)
def test_an_output_replaces_nothing_that_is_needed_and_is_tried_without_a_trace(tmp_path, monkeypatch, name, reason):
    monkeypatch.chdir(tmp_path)
    for file, text in {
        "input.toml": "a = 1",
        "lines.jsonl": '{"schema":1}\n',
        "indented.json": '{\n "schema": 1',
        "self-test.json": '{"tested": []',
        "projection.json": '{\n  "projections": []',
    }.items():
        (tmp_path / file).write_text(text)
    os.link("input.toml", "hard-link")
    os.mkfifo("fifo")
    (tmp_path / "folder").mkdir()
    before = contents(tmp_path)
    path = type(tmp_path)(name)
    with pytest.raises(
        WrongInputError, match=f"^--csv: {re.escape(repr(str(path)))} cannot be written: {reason}; allowed"
    ):
        check_output("--csv", path, [tmp_path / "input.toml", tmp_path / "later.jsonl"])
    check_output("--csv", tmp_path / "new.csv")
    check_output("--csv", tmp_path / ("x" * 255))
    check_output_folder("results", tmp_path / "not/yet")
    assert contents(tmp_path) == before


def test_a_name_of_the_greatest_length_can_be_written(tmp_path):
    replace_text(tmp_path / ("x" * 255), "new")
    assert os.listdir(tmp_path) == ["x" * 255]


WRITERS = {
    "replaced": lambda path: replace_text(path, "new"),
    "appended": lambda path: append_row(path, Row(kind="line")),
    "locked": lambda path: os.close(open_locked(path)),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", ["gate.xml", "results/gate/history.jsonl"])
def test_nothing_is_written_through_a_link_of_a_checkout(tmp_path, writer, name):
    """A commit has the link `gate.xml`, or `results`, which leads outside."""
    top, outside = tmp_path / "top", tmp_path / "outside"
    (top / ".git").mkdir(parents=True)
    (outside / "gate").mkdir(parents=True)
    (outside / "mine").write_text("mine")
    (top / "gate.xml").symlink_to(outside / "mine")
    (top / "results").symlink_to(outside)
    before = contents(outside)
    with pytest.raises((OSError, StoreError), match="in a git checkout is a symbolic link"):
        WRITERS[writer](top / name)
    with pytest.raises(WrongInputError, match="in a git checkout is a symbolic link"):
        check_output("--junit", top / name)
    with pytest.raises(WrongInputError, match="in a git checkout is a symbolic link"):
        check_output_folder("results", top / "results/gate")
    assert contents(outside) == before


def test_a_users_link_outside_of_checkouts_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    replace_text(tmp_path / "link/file", "new")
    assert (tmp_path / "real/file").read_text() == "new"
    assert (tmp_path / "link").is_symlink()
