"""Files that survive a crash: some are replaced as a whole, others only grow by lines.

A replaced file holds the old text or the new one.

A file of lines is complete up to its last newline. A line is one write, synced. An unfinished line is cut off at once,
or after a crash by the next writer. Readers ignore it.
"""

import errno
import fcntl
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Replace the file by this text, as `replace_bytes` does."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a new file, sync it and rename it to `path`; a link stays a link.

    Raise OSError and leave the old file if that fails, or if the path is a device, a pipe or a folder.
    """
    path = Path(os.path.realpath(path))  # unlike Path.resolve, it takes a link to itself
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, path.stat().st_mode & 0o777 if path.exists() else 0o644)
            file.write(content)
            file.flush()
            os.fsync(fd)
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise


_BLOCK_BYTES = 1 << 16


def open_locked(path: Path) -> tuple[int, int]:
    """Lock the file; return its descriptor and how many bytes of a torn end were cut off.

    Closing the descriptor releases the lock.

    Raise OSError, and BlockingIOError if another process has the lock.
    """
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(fd), os.stat(path)):
            raise BlockingIOError  # another writer replaced the file after it was opened
        cut_bytes = _cut_torn_end(fd)
        sync_folder(path.parent)
    except OSError:
        os.close(fd)
        raise
    return fd, cut_bytes


def append_line(fd: int, line: bytes, what: str) -> None:
    """Write and sync a line, which has its newline.

    If that fails, restore the file and raise OSError.

    `what` names the line in the error.
    """
    old_size = os.fstat(fd).st_size
    try:
        written = os.write(fd, line)
        if written < len(line):
            raise OSError(f"{written} of the {len(line)} bytes of {what} fit")
        os.fsync(fd)
    except OSError:
        with suppress(OSError):
            os.ftruncate(fd, old_size)
        raise


def reason_of(error: OSError) -> str:
    """Return why `open_locked` or `append_line` failed, in a few words."""
    if isinstance(error, BlockingIOError):
        return "another process is writing it; allowed: one writer"
    return error.strerror or str(error)


def sync_folder(folder: Path) -> None:
    """Sync the names of the folder's files: fsync of a file does not sync its name."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _cut_torn_end(fd: int) -> int:
    """Truncate the file after its last newline and return how many bytes were cut off."""
    size = os.fstat(fd).st_size
    start = size
    while start > 0:
        block_bytes = min(_BLOCK_BYTES, start)
        start -= block_bytes
        newline = os.pread(fd, block_bytes, start).rfind(b"\n")
        if newline >= 0:
            start += newline + 1
            break
    if start < size:
        os.ftruncate(fd, start)
        os.fsync(fd)
    return size - start
