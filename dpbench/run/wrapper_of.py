"""Take `dpbench.parallel` from a commit's folder; all else of dpbench stays the one that runs.

The wrapper imports nothing of ours, so one harness measures the wrappers of all commits, and a change of the harness is
never blamed on a wrapper.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

WRAPPER = "dpbench.parallel"


def use_tree(tree: Path) -> None:
    """From now on this process has the wrapper of `tree`, if that has one, and user's factories of `tree` too.

    Factories are looked for in the current directory, so that becomes `tree`. Must come before the first import of
    `dpbench.parallel`.
    """
    assert WRAPPER not in sys.modules
    if has_wrapper(tree):
        find_wrapper_in(tree)
    os.chdir(tree)


def find_wrapper_in(tree: Path) -> None:
    """From now on this process imports the wrapper of `tree`, or none: ModuleNotFoundError where it has none."""
    sys.meta_path.insert(0, _WrapperOf(tree))


def has_wrapper(tree: Path) -> bool:
    return (tree / _path(WRAPPER)).is_dir()


class _WrapperOf:
    """Answers for the wrapper alone; its submodules are found on its own path."""

    def __init__(self, tree: Path) -> None:
        self._parent = str((tree / _path(WRAPPER)).parent)

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002
        if name != WRAPPER:
            return None
        spec = PathFinder.find_spec(name, [self._parent])
        if spec is None:  # else the running one would be found, and taken for the tree's
            raise ModuleNotFoundError(f"No module named {name!r} in this commit", name=name)
        return spec


def _path(module: str) -> str:
    return module.replace(".", "/")
