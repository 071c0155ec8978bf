"""A real disk that is full: a file system of a few pages, in a mount namespace of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpbench.records.record import Record
from dpbench.records.row import to_line
from dpbench.records.store import Contents, read_rows
from dpbench.text.files import replace_text
from tests.records.making import case, ok

ROOT = Path(__file__).parents[2]
MOUNTED = "mount -t tmpfs -o size=16k none {folder} && cd {root} && {python} -c '{code}' {folder}"

WRITER = """
import shutil, sys
from pathlib import Path
from dpbench.records.store import Store, StoreError
from tests.records.making import case, ok
path = Path(sys.argv[1]) / "run.jsonl"
store = Store(path)
try:
    for number in range(1000):
        store.append(ok(case(), number))
except StoreError as error:
    print(number, error)
store.close()
shutil.copy(path, path.parent.parent / "seen.jsonl")
"""


REPLACER = """
import sys
from pathlib import Path
from dpbench.records import expected
from dpbench.records.expected import Expected, WrongInputError
from dpbench.records.recording import Mark, Recording
folder = Path(sys.argv[1])
path, events = folder / "counts.json", folder / "events.jsonl"
path.write_text("old")
events.write_text("old")
counts = Expected(torch="2", python="3", cases={str(i): {"operators": i} for i in range(3000)})
try:
    expected.write(path, counts)
except WrongInputError as error:
    print(error)
try:
    Recording(devices=1, events=[Mark(id=i, name="forward") for i in range(3000)]).write(events)
except OSError as error:
    print(error)
print(path.read_text(), events.read_text(), *sorted(file.name for file in folder.iterdir()))
"""


def unshared(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True, check=False)


def skip_unless_allowed(mount: str) -> None:
    try:
        allowed = unshared(mount)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if allowed.returncode != 0:
        pytest.skip(f"this machine allows no mounts: {allowed.stderr.strip()}")


def test_appending_to_a_full_disk_says_so_and_keeps_every_record_before(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    skip_unless_allowed(f"mount -t tmpfs -o size=16k none {folder}")
    done = unshared(MOUNTED.format(folder=folder, root=ROOT, python=sys.executable, code=WRITER))
    assert done.returncode == 0, done.stderr
    number, _, error = done.stdout.strip().partition(" ")
    assert error.startswith(f"{folder}/run.jsonl: cannot be written: ")
    assert "No space left on device" in error or "bytes of a line fit" in error
    kept = tuple(ok(case(), i) for i in range(int(number)))
    assert len(kept) > 5
    assert read_rows(tmp_path / "seen.jsonl", Record) == Contents(kept)
    assert (tmp_path / "seen.jsonl").read_bytes() == b"".join(map(to_line, kept))


def test_a_file_that_cannot_be_replaced_keeps_its_old_text(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    skip_unless_allowed(f"mount -t tmpfs -o size=16k none {folder}")
    done = unshared(MOUNTED.format(folder=folder, root=ROOT, python=sys.executable, code=REPLACER))
    assert done.returncode == 0, done.stderr
    of_counts, of_events, left = done.stdout.splitlines()
    assert f"{folder}/counts.json' cannot be written: No space left on device" in of_counts
    assert "No space left on device" in of_events
    assert left == "old old counts.json events.jsonl"


@pytest.mark.parametrize("place", ["fifo", "folder", "/dev/null"])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, place: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="not a regular file"):
        replace_text(tmp_path / place, "text")
    assert not Path(tmp_path / place).is_file()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fifo", "folder"]
