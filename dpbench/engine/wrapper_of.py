"""Import `dpbench.parallel` from the folder of another commit, so one harness measures all commits' wrappers."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from dpbench.text.outside import read_input

WRAPPER = "dpbench.parallel"
_compiled: dict[str, CodeType] = {}
"""Code of wrappers that many forks import, by the file's path."""


def compile_wrapper(folder: Path) -> None:
    """Compile for the forks of this process, which may write no byte code."""
    for path in (folder / _path(WRAPPER)).rglob("*.py"):
        with suppress(Exception):  # a fork that imports it will say what is wrong
            _compiled[str(path)] = compile(read_input(path), str(path), "exec", dont_inherit=True)


def use_folder(folder: Path) -> None:
    """Import a commit's wrapper, if it has one, and factories from now on.

    Call this before the first import of `dpbench.parallel`.
    """
    assert WRAPPER not in sys.modules
    if has_wrapper(folder):
        find_wrapper_in(folder)
    os.chdir(folder)


def built_of(folder: Path) -> Path:
    """The folder beside a commit's with its packages as installed."""
    return folder.with_name(f"{folder.name}-built")


def scratch_of(folder: Path) -> Path:
    """The folder beside a commit's that its borrowed benchmarks write into."""
    return folder.with_name(f"{folder.name}-scratch")


def find_wrapper_in(folder: Path) -> None:
    """Import the wrapper from `folder` only; without one, importing it raises ModuleNotFoundError.

    asv's environments call this from a .pth file.
    """
    sys.meta_path.insert(0, _WrapperFinder(folder))


def has_wrapper(folder: Path) -> bool:
    return (folder / _path(WRAPPER)).is_dir()


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        return _compiled.get(self.path) or super().get_code(fullname)


class _WrapperFinder:
    def __init__(self, folder: Path) -> None:
        self._parent = str((folder / _path(WRAPPER)).parent)

    def find_spec(self, name: str, path: Sequence[str] | None = None, _: ModuleType | None = None) -> ModuleSpec | None:
        if name != WRAPPER and not name.startswith(f"{WRAPPER}."):
            return None
        spec = PathFinder.find_spec(name, [self._parent] if name == WRAPPER else path)
        if spec is None and name == WRAPPER:  # None would let the next finder return the running dpbench's wrapper
            raise ModuleNotFoundError(f"No module named {name!r} in this commit", name=name)
        if spec is not None and spec.origin in _compiled:
            spec.loader = _Loader(name, spec.origin)
        return spec


def _path(module: str) -> str:
    return module.replace(".", "/")
