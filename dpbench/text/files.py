"""Files that survive a crash: a replaced file holds the old text or the new one.

A file of lines is complete up to its last newline. An unfinished line is cut off at once, or by the next write after a
crash. A file that does not begin with a schema of dpbench is never written to.
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
    """As `replace_bytes`."""
    replace_bytes(path, text.encode())


def replace_bytes(path: Path, content: bytes) -> None:
    """Write and sync a new file, then rename it to `path`; a link outside of checkouts stays a link.

    Raise OSError, and leave the old file, if that fails or the path is a device, a pipe or a folder.
    """
    refuse_links(path)
    path = Path(os.path.realpath(path))  # unlike Path.resolve, it takes a link to itself
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=".dpbench-")
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


def cache_folder() -> Path:
    """The user's, which may not exist yet: ``$XDG_CACHE_HOME/dpbench``."""
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (root if root.is_absolute() else Path(os.path.expanduser("~"), ".cache")) / "dpbench"


def refuse_links(path: Path) -> None:
    """Raise OSError if a link that lies in a git checkout leads to `path`: a commit may have made it."""
    absolute = path.absolute()
    for part in (*reversed(absolute.parents), absolute):
        folder = Path(os.path.realpath(part.parent))
        if part.is_symlink() and any(os.path.lexists(top / ".git") for top in (folder, *folder.parents)):
            raise OSError(errno.ELOOP, f"{part.name!r} in a git checkout is a symbolic link", str(path))


_BLOCK_BYTES = 1 << 16
_BEGINNING = b'{"schema":'


def open_locked(path: Path, patience_s: float = 0.0) -> int:
    """Return the descriptor of a file, made if needed; closing it releases the lock.

    A link is not followed, so that no file outside the folder is written. Raise OSError, and BlockingIOError if another
    process has the lock for `patience_s`.
    """
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            return _open_locked(path)
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


def _open_locked(path: Path) -> int:
    refuse_links(path)
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


def append_line(fd: int, line: bytes) -> None:
    """Cut off a torn end; write and sync a line with its newline.

    If that fails, keep the complete lines and raise OSError.
    """
    old_size = _cut_torn_end(fd)
    try:
        written = os.write(fd, line)
        if written < len(line):
            raise OSError(f"{written} of the {len(line)} bytes of a line fit")
        os.fsync(fd)
    except OSError:
        with suppress(OSError):
            os.ftruncate(fd, old_size)
        raise


def reason_of(error: OSError) -> str:
    """Why a file of lines could not be opened or appended to."""
    if isinstance(error, BlockingIOError):
        return "another process is writing it; allowed: one writer"
    if error.errno == errno.ELOOP and error.strerror == os.strerror(errno.ELOOP):
        return "a symbolic link; allowed: a regular file"
    return error.strerror or str(error)


def sync_folder(folder: Path) -> None:
    """Sync the names of its files, which fsync of a file does not."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _cut_torn_end(fd: int) -> int:
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
