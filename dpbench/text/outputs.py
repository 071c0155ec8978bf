"""Whether a command's output can be written to a path and replaces nothing that is needed."""

import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryFile

from dpbench.errors import WrongInputError
from dpbench.text.files import reason_of, refuse_links

_RECORDS = re.compile(rb'\s*\{\s*"(schema|tested|projections)"\s*:')
"""How our files of records begin, self-tests of the gate, and what `dpbench project --json` prints."""
_BEGINNING_BYTES = 64
_MOST_NAME_BYTES = 255  # of a file name in Linux


def check_output(option: str, path: Path, inputs: Iterable[Path] = ()) -> None:
    """Try to write beside `path`; nothing stays there. Raise WrongInputError, which names the option.

    Refused are a folder, a device, a file of records, and each of the `inputs`, which need not exist yet.
    """
    try:
        _try(path, inputs)
    except OSError as error:
        allowed = "a file that is no input and no file of records, in a folder that can be written"
        raise WrongInputError(
            f"{option}: {str(path)!r} cannot be written: {reason_of(error)}; allowed: {allowed}"
        ) from error


def check_output_folder(option: str, folder: Path) -> None:
    """Raise WrongInputError, which names the option, if no file could be written in the folder."""
    try:
        try_folder(folder)
    except OSError as error:
        reason = f"{option}: {str(folder)!r} cannot be written: {reason_of(error)}"
        raise WrongInputError(f"{reason}; allowed: a folder that can be written") from error


def try_folder(folder: Path) -> None:
    """Raise OSError if a file cannot be written in the folder, or in the one in which it would be made."""
    refuse_links(folder)
    with TemporaryFile(dir=next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))):
        pass


def _try(path: Path, inputs: Iterable[Path]) -> None:
    if len(os.fsencode(path.name)) > _MOST_NAME_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    if path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    refuse_links(path)
    target = os.path.realpath(path)
    if any(target == os.path.realpath(one) or _is_same(path, one) for one in inputs):
        raise OSError(errno.EINVAL, "it is an input of this command")
    if path.exists():
        if not path.is_file():
            raise OSError(errno.EINVAL, "not a regular file")
        with open(path, "rb") as file:
            if _RECORDS.match(file.read(_BEGINNING_BYTES)):
                raise OSError(errno.EINVAL, "it is a file of records")
    with TemporaryFile(dir=os.path.dirname(target)):
        pass


def _is_same(path: Path, other: Path) -> bool:
    """Whether both are one file, as hard links are."""
    return path.exists() and other.exists() and path.samefile(other)
