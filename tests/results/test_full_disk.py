"""A real disk that is full: a file system of a few pages, in a mount namespace of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from dpbench.results.record import to_line
from dpbench.results.store import Contents, Store
from tests.results.making import case, ok

ROOT = Path(__file__).parents[2]
MOUNTED = "mount -t tmpfs -o size=16k none {folder} && cd {root} && {python} -c '{code}' {folder}"

WRITER = """
import shutil, sys
from pathlib import Path
from dpbench.results.store import Store, StoreError
from tests.results.making import case, ok
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
    assert "No space left on device" in error or "bytes of a record fit" in error
    kept = tuple(ok(case(), i) for i in range(int(number)))
    assert len(kept) > 5
    assert Store(tmp_path / "seen.jsonl").read() == Contents(kept)
    assert (tmp_path / "seen.jsonl").read_bytes() == b"".join(map(to_line, kept))
