"""asv's benchmarks, by asv_runner's own discovery and classes."""

import gc
import hashlib
import io
import itertools
import math
import os
import pickle
import shutil
import timeit
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from asv.util import load_json
from asv_runner._aux import update_sys_path
from asv_runner.benchmarks.time import TimeBenchmark
from asv_runner.benchmarks.timeraw import TimerawBenchmark
from asv_runner.discovery import disc_benchmarks, get_benchmark_from_name
from asv_runner.setup_cache import _setup_cache

from dpbench.measure.borrowed.lent import BorrowedError, Lending, Sample, SkippedError, Use, new_clock
from dpbench.records.borrowed import Kind, Listed, Listing

_CONFIGS = ("asv.conf.json", "asv.conf.jsonc", "*/asv.conf.json", "*/asv.conf.jsonc")


def benchmark_folder(commit: Path) -> str:
    """Return the `benchmark_dir` of the commit's asv.conf.json. Raises BorrowedError."""
    configs = list(itertools.chain.from_iterable(sorted(commit.glob(pattern)) for pattern in _CONFIGS))
    if not configs:
        raise BorrowedError("no asv.conf.json in the repository's root or in a folder of it")
    try:
        keys = load_json(str(configs[0]), js_comments=True)
    except Exception as error:
        raise BorrowedError(f"{configs[0].relative_to(commit)} cannot be read: {error}") from error
    folder = configs[0].parent / keys.get("benchmark_dir", "benchmarks")
    if not folder.is_dir():
        raise BorrowedError(f"benchmark_dir: {folder.relative_to(commit)} is no folder")
    return str(folder.resolve())


def list_asv(commit: Path) -> Listing:
    """Return all benchmarks, each with all its parameters. Modules that do not import are left out, with a problem."""
    folder, errors = benchmark_folder(commit), io.StringIO()
    update_sys_path(folder)
    with redirect_stderr(errors):
        found = list(disc_benchmarks(folder, ignore_import_errors=True))
    lines = errors.getvalue().splitlines()
    ends = [
        line for line, after in zip(lines, [*lines[1:], "Traceback"], strict=False) if after.startswith("Traceback")
    ]
    listed = [
        Listed(name=name, kind=_kind(benchmark), version=benchmark.version, refused=_refused(benchmark))
        for benchmark in found
        for name in names_of(benchmark)
    ]
    return Listing(benchmarks=tuple(listed), problems=tuple(dict.fromkeys(ends)))


def names_of(benchmark: Any) -> Iterator[str]:
    """Yield the name with each combination of parameters, as asv writes it."""
    for parameters in itertools.product(*benchmark.params):
        yield f"{benchmark.name}({', '.join(parameters)})" if parameters else benchmark.name


def lend_asv(commit: Path, name: str, lending: Lending, use: Use) -> None:
    """Set the benchmark up, lend it to `use`, and tear it down. The current folder is where asv would run it."""
    with _set_up(commit, name, lending) as benchmark:

        def take() -> Sample:
            result = benchmark.do_run()
            return Sample(result["samples"][0], result["number"])

        use(take)


def value_asv(commit: Path, name: str, lending: Lending) -> tuple[float | None, str]:
    """Return the value that the benchmark tracks, or None if it has none, and its unit. Raises BorrowedError."""
    with _set_up(commit, name, lending) as benchmark:
        value = benchmark.do_run()
    try:
        number = math.nan if value is None else float(value)
    except (TypeError, ValueError):
        raise BorrowedError(f"its value is {type(value).__name__}; a number is allowed") from None
    return number if math.isfinite(number) else None, str(benchmark.unit)


@contextmanager
def _set_up(commit: Path, name: str, lending: Lending) -> Iterator[Any]:
    benchmark = _opened(commit, name, lending)
    if benchmark.setup_cache_key is not None:
        benchmark.set_cache(_cached(commit, name, benchmark, lending.caches))
    benchmark.func = lending.probed(benchmark.func)
    if benchmark.do_setup():
        raise SkippedError("its set-up skips it")
    redo_setup = benchmark.redo_setup

    def redo_with_garbage_collection() -> None:
        redo_setup()
        gc.enable()  # timeit switches it off; the gate judges the mean, which has to see what garbage costs

    benchmark.redo_setup = redo_with_garbage_collection
    try:
        yield benchmark
    finally:
        benchmark.do_teardown()


def _opened(commit: Path, name: str, lending: Lending) -> Any:
    """Return asv's benchmark with its parameters chosen, and with one sample as all that a run takes."""
    folder, bare = benchmark_folder(commit), name.partition("(")[0]
    timing = {"repeat": (1, 1, 0.0), "sample_time": lending.sample_s}
    if lending.number is not None:
        timing |= {"number": lending.number, "warmup_time": 0}
    benchmark = get_benchmark_from_name(folder, bare, extra_params=timing)
    names = list(names_of(benchmark))
    if name not in names:
        raise BorrowedError(f"it has no parameters {name.removeprefix(bare)}")
    if benchmark.params:
        benchmark.set_param_idx(names.index(name))
    if getattr(benchmark, "timer", None) is timeit.default_timer:
        benchmark._attr_sources[0].timer = new_clock()  # asv's own way for options that precede the suite's
    return benchmark


def _cached(commit: Path, name: str, benchmark: Any, caches: Path) -> Any:
    """Return what `setup_cache` made, and the files that it wrote into the current folder.

    asv calls it once, in a process of its own, and so does the first fork that asks.
    """
    cache = caches / hashlib.sha256(benchmark.setup_cache_key.encode()).hexdigest()
    if not cache.exists():
        new = cache.with_suffix(".new")
        new.mkdir()
        _in_a_fork(new, lambda: _setup_cache((benchmark_folder(commit), name.partition("(")[0], "{}")))
        new.rename(cache)
    shutil.copytree(cache, ".", dirs_exist_ok=True)
    with open("cache.pickle", "rb") as file:
        return pickle.load(file)  # noqa: S301  # the suite's own


def _in_a_fork(folder: Path, work: Any) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            work()
        except BaseException as error:
            os.write(writer, "".join(traceback.format_exception_only(error)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        reason = pipe.read().decode(errors="replace")
    status = os.waitpid(pid, 0)[1]
    if reason or status:
        raise BorrowedError(f"setup_cache: {reason or f'ended with status {status}'}")


def _kind(benchmark: Any) -> Kind:
    return Kind.TIME if isinstance(benchmark, TimeBenchmark) else Kind.VALUE


def _refused(benchmark: Any) -> str | None:
    if isinstance(benchmark, TimerawBenchmark):
        return "timeraw starts a process for each sample, and a gate compares calls inside lasting processes"
    return "it is a coroutine function, which asv does not await" if iscoroutinefunction(benchmark.func) else None
