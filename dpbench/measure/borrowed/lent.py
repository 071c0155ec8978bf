"""A benchmark between its set-up and its tear-down, and the commit's packages that it imports."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, NamedTuple, Protocol

SAMPLE_S = 0.002
"""Of a sample that a framework calibrates."""
PEAK_UNIT = "bytes above its process' start"
"""The unit of `peakmem_` here. asv's own figure, ru_maxrss, has what a fork inherits from its parent."""
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class BorrowedError(Exception):
    """The reason why a benchmark cannot be borrowed."""


class SkippedError(BorrowedError):
    """The benchmark's owner skips it here."""


class Sample(NamedTuple):
    """The mean seconds of `calls` calls; of 0 calls a benchmark's value, with its `unit`."""

    call_s: float
    calls: int
    unit: str = ""


class Lent(Protocol):
    """Takes a sample of `number` calls, or of as many as the framework calibrates."""

    def __call__(self, number: int | None = None) -> Sample: ...


class Probe:
    """Each call of the borrowed function runs inside the context of `around`."""

    around: Callable[[], AbstractContextManager[object]] | None = None

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def probed(*args: Any, **kwargs: Any) -> Any:
            with self.around() if self.around else nullcontext():
                return function(*args, **kwargs)

        return probed


Use = Callable[[Lent, bool], object]
"""Gets a benchmark, and whether a process' first call is what it measures: then it can be called once."""


def import_from(folders: Sequence[str], *, one_thread: bool) -> None:
    """Import the packages in `folders` from there, whatever `sys.path` has later.

    Packages already imported from elsewhere are forgotten, but for dpbench and the standard library.
    """
    os.environ.update(dict.fromkeys(_ONE_THREAD if one_thread else (), "1"))
    sys.path[:0] = folders
    sys.meta_path.insert(0, _Finder(folders))
    names = {entry.name.partition(".")[0] for folder in folders for entry in Path(folder).iterdir()}
    for module in [name for name in sys.modules if _is_foreign(name) and name.partition(".")[0] in names]:
        del sys.modules[module]


def _is_foreign(module: str) -> bool:
    name = module.partition(".")[0]
    return name not in sys.stdlib_module_names and name not in ("dpbench", "__main__")


class _Finder:
    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        return PathFinder.find_spec(name, self._folders) if path is None and _is_foreign(name) else None
