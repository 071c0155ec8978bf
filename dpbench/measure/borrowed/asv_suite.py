"""asv's benchmarks, by asv_runner's own discovery and classes."""

import gc
import io
import itertools
import math
import os
import pickle
import shutil
import time
import timeit
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr
from hashlib import sha256
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from asv.util import load_json  # type: ignore[import-untyped]
from asv_runner._aux import update_sys_path
from asv_runner.benchmarks._base import _get_first_attr
from asv_runner.benchmarks.peakmem import PeakMemBenchmark
from asv_runner.benchmarks.time import TimeBenchmark
from asv_runner.benchmarks.timeraw import TimerawBenchmark
from asv_runner.discovery import disc_benchmarks, get_benchmark_from_name
from asv_runner.setup_cache import _setup_cache

from dpbench.measure.borrowed.asv_conf import configurations, split_name
from dpbench.measure.borrowed.lent import PEAK_UNIT, SAMPLE_S, BorrowedError, Probe, Sample, SkippedError, Use
from dpbench.measure.undisturbed import stopwatch


def find_asv(commit: Path, named: str | None = None) -> tuple[dict[str, Any], list[str], list[str]]:
    """All benchmarks by name with their parameters, the last lines of errors at import, and notes.

    Names begin with the path of the configuration if it was `named`.
    """
    (folder, notes), errors = _enter_suite(commit, named), io.StringIO()
    update_sys_path(folder)
    with redirect_stderr(errors):
        benchmarks = list(disc_benchmarks(folder, ignore_import_errors=True))
    tracebacks = errors.getvalue().split("Traceback (most recent call last):\n")[1:]
    problems = [text.strip().splitlines()[-1] for text in tracebacks]
    prefix = f"{named}:" if named else ""
    return {prefix + name: benchmark for benchmark in benchmarks for name in _names_of(benchmark)}, problems, notes


def why_not(benchmark: Any) -> str | None:
    """The reason why a benchmark cannot be lent, or None."""
    if isinstance(benchmark, TimerawBenchmark):
        return "timeraw starts a process for each sample, and a gate compares calls inside lasting processes"
    return "it is a coroutine function, which asv does not await" if iscoroutinefunction(benchmark.func) else None


def timeouts_s(commit: Path, benchmark: Any, named: str | None = None) -> tuple[float, float]:
    """The suite's limits for a benchmark and for its `setup_cache`."""
    default_s = float(_configuration(commit, named)[1].get("default_benchmark_timeout", 60))
    own_s = default_s if benchmark.timeout is None else float(benchmark.timeout)
    return own_s, own_s if benchmark.setup_cache_timeout is None else float(benchmark.setup_cache_timeout)


def is_value(benchmark: Any) -> bool:
    return not isinstance(benchmark, TimeBenchmark)


def lend_asv(commit: Path, name: str, caches: Path, use: Use, probe: Probe | None = None) -> None:
    """Set a benchmark up, lend it to `use`, and tear it down; `caches` keeps what `setup_cache` makes.

    Raises BorrowedError.
    """
    start_bytes = peak_bytes()
    with _set_up(commit, name, caches, probe) as benchmark:
        options = benchmark._attr_sources[0]

        def take(number: int | None = None) -> Sample:
            if number is not None and not is_value(benchmark):
                options.number, options.warmup_time = number, 0
                benchmark._load_vars()
            try:
                result = benchmark.do_run()
            except NotImplementedError as error:
                raise SkippedError(f"its call skips it: {str(error) or type(error).__name__}") from error
            if isinstance(benchmark, PeakMemBenchmark):
                return Sample(peak_bytes() - start_bytes, 0, PEAK_UNIT)
            return (
                _value(result, benchmark.unit)
                if is_value(benchmark)
                else Sample(result["samples"][0], result["number"])
            )

        use(take, _measures_first_call(benchmark))


def peak_bytes() -> int:
    """The most memory of this process so far; in a new fork, its parent's at that moment."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def _measures_first_call(benchmark: Any) -> bool:
    """Whether asv calls it once in each process."""
    if is_value(benchmark):
        return False
    sources = benchmark._attr_sources[1:]  # the first are ours, see `_set_up`
    attributes = {"number": 1, "repeat": 1, "warmup_time": 0}
    return all(_get_first_attr(sources, name, None) == value for name, value in attributes.items())


def _value(result: Any, unit: str) -> Sample:
    if not isinstance(result, int | float) or not math.isfinite(result):
        raise BorrowedError(f"its value is {result!r:.40}; allowed: a finite number")
    return Sample(result, 0, unit)


def _configuration(commit: Path, named: str | None = None) -> tuple[Path, dict[str, Any]]:
    path = commit / named if named else next(iter(configurations(commit)), commit / "asv.conf.json")
    if not path.is_file():
        raise BorrowedError(f"no {named or path.name}; allowed: asv's configuration in a folder of the repository")
    return path, load_json(str(path), js_comments=True)


def _enter_suite(commit: Path, named: str | None = None) -> tuple[str, list[str]]:
    """Set the variables that asv sets, from `matrix` the first value; return the `benchmark_dir`, and notes."""
    path, config = _configuration(commit, named)
    folder = path.parent / config.get("benchmark_dir", "benchmarks")
    if not folder.is_dir():
        raise BorrowedError(f"{path.relative_to(commit)}: benchmark_dir: {folder.name!r} is no folder")
    os.environ.update(ASV="true", ASV_PROJECT=str(config.get("project", "")), ASV_CONF_DIR=str(path.parent))
    notes, other_files = list[str](), configurations(commit)[1:]
    if other_files and not named:
        there = ", ".join(str(other.relative_to(commit)) for other in other_files)
        notes.append(f"measured is {path.relative_to(commit)}, not {there}; --asv PATH names another one")
    for kind in ("env", "env_nobuild"):
        for name, listed in dict(config.get("matrix", {}).get(kind) or {}).items():
            values = listed if isinstance(listed, list) else [listed]
            if values and values[0] is not None:
                os.environ[name] = str(values[0])
            if values[1:]:
                notes.append(f"{path.name}: matrix: {kind}: {name}: measured with {values[0]!r} alone, of {values!r}")
    return str(folder.resolve()), notes


def _names_of(benchmark: Any) -> Iterator[str]:
    for parameters in itertools.product(*benchmark.params):
        yield f"{benchmark.name}({', '.join(parameters)})" if parameters else benchmark.name


@contextmanager
def _set_up(commit: Path, name: str, caches: Path, probe: Probe | None) -> Iterator[Any]:
    # These options precede the suite's own. They make a run one sample.
    named, name = split_name(name)
    folder, bare = _enter_suite(commit, named)[0], name.partition("(")[0]
    benchmark = get_benchmark_from_name(folder, bare, extra_params={"repeat": (1, 1, 0.0), "sample_time": SAMPLE_S})
    if benchmark.params:
        benchmark.set_param_idx(list(_names_of(benchmark)).index(name))
    if getattr(benchmark, "timer", None) is timeit.default_timer:
        benchmark._attr_sources[0].timer = stopwatch(time.perf_counter)
    if probe is not None:
        benchmark.func = probe.wrap(benchmark.func)
    if benchmark.setup_cache_key is not None:
        benchmark.set_cache(_cached(folder, bare, benchmark.setup_cache_key, caches))
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


def _cached(folder: str, bare: str, key: str, caches: Path) -> Any:
    cache = caches / sha256(key.encode()).hexdigest()
    if not cache.exists():
        new = cache.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        with chdir(new):
            _setup_cache((folder, bare, "{}"))
        new.rename(cache)
    shutil.copytree(cache, ".", dirs_exist_ok=True)
    return pickle.loads(Path("cache.pickle").read_bytes())  # noqa: S301  # the suite's own
