"""The user's code: found in the current directory first, and its errors become one line."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from dpbench.cases.names import IMPORT_FOLDERS
from dpbench.workloads.workload import WorkloadError

T = TypeVar("T")


@contextmanager
def current_directory_importable() -> Iterator[None]:
    """Within the block, the current directory and its ``src`` are first on `sys.path`, before an installed copy.

    Then the directory and torch's thread count are what they were before.
    """
    here, threads = Path.cwd(), torch.get_num_threads()
    places = [str(here / folder) for folder in IMPORT_FOLDERS]
    sys.path[:0] = places
    try:
        yield
    finally:
        for place in places:
            if place in sys.path:
                sys.path.remove(place)
        os.chdir(here)
        torch.set_num_threads(threads)


def load(named: str, text: str) -> Any:
    """The object that ``package.module:attribute`` names; `named` begins the line of a WorkloadError."""
    module, _, attribute = text.partition(":")
    imported = attempt(named, f"importing {module}", lambda: importlib.import_module(module))
    return attempt(named, f"looking up {attribute}", lambda: getattr(imported, attribute))


def attempt(named: str, what: str, action: Callable[[], T]) -> T:
    """Raises WorkloadError if the user's code raises, `sys.exit` included."""
    try:
        return action()
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise WorkloadError(f"{named}: {what} raised {type(error).__name__}: {text}") from error


def kind_of(value: object) -> str:
    """A value's type, and its shape or the beginning of its text."""
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    return f"{type(value).__name__} {str(value)[:40]!r}"
