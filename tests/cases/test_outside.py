"""Files and texts from outside: only regular files of bounded size are read, and no text commands a terminal."""

import os

import pytest

from dpbench.text import outside
from dpbench.text.outside import one_line, open_input, printable, read_input, read_json

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x9b5m\r\n\udcff\u202etab\tend"


def test_no_text_commands_a_terminal():
    assert all(c == "\n" or c.isprintable() for c in printable(HOSTILE))
    assert one_line(HOSTILE) == "[31mred ]0;title 5m tab end"
    assert printable("a\n  b") == "a\n  b"


def test_a_fifo_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        open_input(tmp_path / "fifo")


def test_a_device_and_a_folder_are_not_read(tmp_path):
    with pytest.raises(OSError, match="not a regular file"):
        read_input("/dev/zero")
    with pytest.raises(OSError, match="Is a directory"):
        read_input(tmp_path)


def test_a_large_file_is_not_read(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(outside.MOST_BYTES + 1)
    with pytest.raises(OSError, match="larger than 64 MiB"):
        read_input(tmp_path / "large")


def test_deep_nesting_is_a_value_error(tmp_path):
    (tmp_path / "deep").write_text("[" * 200_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(tmp_path / "deep")
