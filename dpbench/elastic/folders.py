"""The folder of checkpoints: refused before anything is written if it belongs to another model.

FOLDER/elastic.json    what the checkpoints are of
FOLDER/undisturbed/    FOLDER/elastic/    one folder for each run, emptied before it
"""

import json
import os
import shutil
from pathlib import Path

from dpbench.elastic.elastic_record import ElasticSettings, RunScheme
from dpbench.errors import WrongInputError
from dpbench.text.files import replace_text

_OWNER = "elastic.json"


def claim_folder(folder: Path, settings: ElasticSettings) -> None:
    """Remove the checkpoints of an earlier command.

    Raise WrongInputError, and change nothing, if the folder cannot be written or holds something else.
    """
    if not str(folder).isprintable():  # surrogates stand for bytes that are no UTF-8, and pass no message
        raise WrongInputError(f"checkpoints: {str(folder)!r} holds what cannot be printed; allowed: a path of text")
    owner = {"workload": settings.workload, "dtype": settings.dtype}
    try:
        if folder.exists():
            _check_owner(folder, owner)
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(folder / _OWNER, json.dumps(owner) + "\n")
        for scheme in RunScheme:
            shutil.rmtree(folder / scheme, ignore_errors=True)
            (folder / scheme).mkdir()
    except OSError as error:
        raise WrongInputError(
            f"checkpoints: {str(folder)!r} cannot be written: {error.strerror}; allowed: a folder that can be written"
        ) from error


def _check_owner(folder: Path, owner: dict[str, str]) -> None:
    names = os.listdir(folder)
    if not names:
        return
    try:
        found = json.loads((folder / _OWNER).read_text())
    except (FileNotFoundError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise WrongInputError(
            f"checkpoints: {str(folder)!r} holds other files, such as {min(names)!r}; allowed: an empty folder, or "
            "that of an earlier elastic run"
        )
    if found != owner:
        held = " in ".join(str(found.get(key)) for key in owner)
        raise WrongInputError(
            f"checkpoints: {str(folder)!r} holds checkpoints of another model, {held}; allowed: an empty folder, or "
            f"one of {' in '.join(owner.values())}"
        )
