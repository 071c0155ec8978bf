"""A file replaced as a whole: after a crash it holds either the old text or the new."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write beside `path`, sync, rename; a link stays one. Raises OSError with the file as it was."""
    path = path.resolve()
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            os.fchmod(fd, path.stat().st_mode & 0o777 if path.exists() else 0o644)
            file.write(text)
            file.flush()
            os.fsync(fd)
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
