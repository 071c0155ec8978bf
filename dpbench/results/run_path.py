"""A new file for each run."""

from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from dpbench.results.store import StoreError, sync_folder


def new_run_path(folder: Path, command: str) -> Path:
    """Create an empty ``command-20250131T120000Z.jsonl`` that did not exist before, and the folder where it lacks."""
    beginning = f"{command}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            path = folder / f"{beginning}{f'-{number}' if number > 1 else ''}.jsonl"
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                continue
            sync_folder(folder)
            return path
    except OSError as error:
        raise StoreError(
            f"results: {str(folder)!r} cannot be written: {error.strerror}; allowed: a folder that can be written"
        ) from error
    raise AssertionError("count() ends")
