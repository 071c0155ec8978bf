"""Import `dpbench.parallel` from the folder of another commit.

All else stays the running dpbench. The wrapper imports no other room of dpbench. So one harness measures the wrappers
of all commits, and a change of the harness cannot look like a change of a wrapper.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

WRAPPER = "dpbench.parallel"


def use_folder(folder: Path) -> None:
    """Let this process import the wrapper and the user's factories of a commit.

    `folder` is the folder of the commit. If the folder has no wrapper, the running dpbench's wrapper stays. Factories
    are found in the current directory, so `folder` becomes the current directory. Call this before the first import of
    `dpbench.parallel`.
    """
    assert WRAPPER not in sys.modules
    if has_wrapper(folder):
        find_wrapper_in(folder)
    os.chdir(folder)


def built_of(folder: Path) -> Path:
    """Return the folder beside a commit's that has its packages as installed, if they are."""
    return folder.with_name(f"{folder.name}-built")


def scratch_of(folder: Path) -> Path:
    """Return the folder beside a commit's that its borrowed benchmarks write into."""
    return folder.with_name(f"{folder.name}-scratch")


def find_wrapper_in(folder: Path) -> None:
    """Let this process import the wrapper from `folder` only.

    If `folder` has no wrapper, importing it raises ModuleNotFoundError. asv's environments call this from a .pth file.
    """
    sys.meta_path.insert(0, _WrapperFinder(folder))


def has_wrapper(folder: Path) -> bool:
    """Return whether `folder` has a directory ``dpbench/parallel``."""
    return (folder / _path(WRAPPER)).is_dir()


class _WrapperFinder:
    """A finder of `sys.meta_path` for the wrapper alone. Its submodules are found on the wrapper's own path."""

    def __init__(self, folder: Path) -> None:
        self._parent = str((folder / _path(WRAPPER)).parent)

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        if name != WRAPPER:
            return None
        spec = PathFinder.find_spec(name, [self._parent])
        if spec is None:  # None would let the next finder return the running dpbench's wrapper
            raise ModuleNotFoundError(f"No module named {name!r} in this commit", name=name)
        return spec


def _path(module: str) -> str:
    return module.replace(".", "/")
