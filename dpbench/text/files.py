"""Files that survive a crash: some are replaced as a whole, others only grow by lines.

A replaced file holds the old text or the new one.

A file of lines is complete up to its last newline. A line is one write, synced. An unfinished line is cut off at once,
or after a crash by the next line that is written. Readers ignore it.

Every line of dpbench begins with its schema. A file that begins otherwise is not ours, and is never written to.
"""

import errno
import fcntl
import os
import stat
import tempfile
import time
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
_BEGINNING = b'{"schema":'


def open_locked(path: Path) -> int:
    """Lock the file, which is made if needed; return its descriptor. Closing it releases the lock.

    Raise OSError, and BlockingIOError if another process has the lock. A link is not followed, so that no file
    outside the folder is written.
    """
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        begins = os.pread(fd, len(_BEGINNING), 0).rstrip(b"\0")  # after a power cut a file may end with null bytes
        if not _BEGINNING.startswith(begins):
            raise OSError(
                errno.EINVAL, f"not written by dpbench; allowed: a file that begins with {_BEGINNING.decode()}"
            )
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(fd), os.stat(path)):
            raise BlockingIOError  # another writer replaced the file after it was opened
        sync_folder(path.parent)
    except OSError:
        os.close(fd)
        raise
    return fd


def append_line(fd: int, line: bytes, what: str) -> None:
    """Cut off a torn end; write and sync a line, which has its newline.

    If that fails, keep the complete lines and raise OSError. `what` names the line in the error.
    """
    old_size = _cut_torn_end(fd)
    try:
        written = os.write(fd, line)
        if written < len(line):
            raise OSError(f"{written} of the {len(line)} bytes of {what} fit")
        os.fsync(fd)
    except OSError:
        with suppress(OSError):
            os.ftruncate(fd, old_size)
        raise


def append_once(path: Path, line: bytes, what: str, patience_s: float = 0.0) -> None:
    """Open the file, append a line as `append_line` does, and close it.

    The folder is made if needed. Wait up to `patience_s` for another writer. Raise OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            fd = open_locked(path)
            break
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
    try:
        append_line(fd, line, what)
    finally:
        os.close(fd)


def reason_of(error: OSError) -> str:
    """Return why a file of lines could not be opened or appended to, in a few words."""
    if isinstance(error, BlockingIOError):
        return "another process is writing it; allowed: one writer"
    if error.errno == errno.ELOOP:
        return "a symbolic link; allowed: a regular file"
    return error.strerror or str(error)


def sync_folder(folder: Path) -> None:
    """Sync the names of the folder's files: fsync of a file does not sync its name."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _cut_torn_end(fd: int) -> int:
    """Truncate the file after its last newline and return its size in bytes."""
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
    return start
