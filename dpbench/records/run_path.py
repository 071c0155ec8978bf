"""The files that a run writes."""

from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from dpbench.records.store import StoreError
from dpbench.text.files import sync_folder


def sweep_path(folder: Path, spec: Path) -> Path:
    """Return the file of a sweep's records; a stopped sweep continues in it.

    Create the folder if it is missing. Raise StoreError.
    """
    _make(folder)
    return folder / f"sweep-{spec.stem}.jsonl"


def new_run_path(folder: Path, command: str, ending: str = ".jsonl") -> Path:
    """Create a new empty file ``command-20250131T120000Z.jsonl`` and return its path.

    Create the folder if it is missing. Raise StoreError.
    """
    beginning = f"{command}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    _make(folder)
    for number in count(1):
        path = folder / f"{beginning}{f'-{number}' if number > 1 else ''}{ending}"
        try:
            path.touch(exist_ok=False)
            sync_folder(folder)
        except FileExistsError:
            continue
        except OSError as error:
            raise _unwritable(folder, error) from error
        return path
    raise AssertionError("count() ends")


def drop_if_empty(path: Path) -> None:
    """Remove the file of a run that ended before it wrote a line."""
    with suppress(OSError):
        if path.stat().st_size == 0:
            path.unlink()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> StoreError:
    return StoreError(
        f"results: {str(folder)!r} cannot be written: {error.strerror}; allowed: a folder that can be written"
    )
