"""A borrowed benchmark between its set-up and its tear-down, and the commit's code that it imports."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from dpbench.measure.undisturbed import stopwatch

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class BorrowedError(Exception):
    """A benchmark cannot be borrowed. The text is the reason, in one line."""


class SkippedError(BorrowedError):
    """The benchmark's owner skips it here."""


class Sample(NamedTuple):
    """The seconds of one call, as the mean of `calls` calls."""

    call_s: float
    calls: int


Lent = Callable[[], Sample]
"""Takes one sample of a benchmark that is set up."""
Use = Callable[[Lent], object]
"""What is done with it before it is torn down."""


class Probe:
    """Wraps the borrowed function: each call runs inside the context that `around` makes."""

    def __init__(self) -> None:
        self.around: Callable[[], AbstractContextManager[object]] = nullcontext

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def probed(*args: Any, **kwargs: Any) -> Any:
            with self.around():
                return function(*args, **kwargs)

        return probed


class Lending(NamedTuple):
    """How a benchmark is lent.

    `number` is the calls of a sample; the framework calibrates it if it is None. `sample_s` are the seconds that it
    aims at. The current folder is the process's own. `caches` is the folder of what `setup_cache` made, for all forks.
    """

    number: int | None
    caches: Path
    sample_s: float = 0.002
    probe: Probe | None = None

    def probed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function if self.probe is None else self.probe.wrap(function)


def new_clock() -> Callable[[], float]:
    """Return a clock for frameworks that read it before and after their calls. Other processes' time is left out."""
    import time

    return stopwatch(time.perf_counter)


def use_one_thread() -> None:
    """Keep the thread pools of numerical libraries at one thread. Call this before they are imported."""
    os.environ.update(dict.fromkeys(_THREADS, "1"))


def import_from(folders: Sequence[str]) -> None:
    """Import the packages in `folders` from there, whatever a framework adds to `sys.path` later.

    Packages that this process has imported from elsewhere are forgotten. Only dpbench and the standard library stay.
    """
    sys.path[:0] = folders
    sys.meta_path.insert(0, _Finder(list(folders)))
    names = {entry.name.partition(".")[0] for folder in folders for entry in Path(folder).iterdir()}
    for module in list(sys.modules):
        name = module.partition(".")[0]
        if name in names - sys.stdlib_module_names - {"dpbench"}:
            del sys.modules[module]


class _Finder:
    """A finder of `sys.meta_path` for the packages in some folders. Their submodules are found on their own paths."""

    def __init__(self, folders: list[str]) -> None:
        self._folders = folders

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        is_ours = path is None and name not in sys.stdlib_module_names and name != "dpbench"
        return PathFinder.find_spec(name, self._folders) if is_ours else None
