"""All checks for a machine with GPUs, in one command, or in three short calls.

    python -m benchmarks.instruments.on_gpu [--call 1|2|3] [--out DIR] [--wheels DIR] [--steps NAME ...] [--rehearse]
    python -m benchmarks.instruments.on_gpu --call 2 --failed DIR/summary.json     or ids of tests

Call 1 ends within 6 min 40 s, call 2 within 5 min 20 s, call 3 within 8 min: they are for a machine with one GPU that
is lent for a quarter of an hour. In call 1 the refused captures come last and alone, because they can break CUDA for
their process. Call 3 asks what is compiled and under autocast. Without --call all steps run, with longer limits and
more tests, and on several GPUs also comparisons with a GPU for each lane.

Only torch must be installed. The checkout is put on PYTHONPATH, and missing packages come from wheels, which are
unpacked under build/gpu. A step is interrupted at its limit, and the next one runs in any case. DIR gets the output, a
summary, a machine file and a folder of records for each comparison: at most 8 files in a call. --rehearse takes the
smallest workloads.

Exit codes: 0 all passed; 1 some failed; 2 cannot start here; 3 some were cut, skipped or not started; 130 interrupted.
"""

import argparse
import ctypes
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from typing import Any

from benchmarks.instruments.gpu_summary import (
    MACHINE_FILE,
    NOT_RUN,
    End,
    Key,
    Kind,
    Lanes,
    Outcome,
    Row,
    Step,
    code_of,
    lines_of,
    row_of,
    write_summary,
)

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "gpu"
MODULES = ("numpy", "psutil", "pydantic", "pynvml", "pytest", "pytest_timeout", "rich", "scipy.stats", "torch", "typer")
INTERRUPTED = 130
GRACE_S, LEAST_S = 10.0, 5.0
RESERVE_S = GRACE_S + 3.0  # of a call: a step may ignore its interrupt, and the summary follows
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)
_TAIL_LINES = 40
_MOST_WORKERS = 6
_MOST_OUTPUT = 15 << 20  # a lent machine returns no file above 16 MiB
CALLS_S = {1: 400.0, 2: 320.0, 3: 480.0}
"""The seconds of each call, from the start of the command to its end."""
PATIENCE = 4  # the factor of all limits without a call
GRAPHS = "tuned[graphs=true]"
_SCHEMES = ("single", "torch_dp", "naive", "floor", "tuned", "ddp")
_COMPARED, _AHEAD = ("single", "torch_dp", "floor", "tuned"), ("torch_dp", "tuned", GRAPHS)
_COMPILED = (
    *("single", "single[compile=default]", "single[compile=reduce-overhead]", "torch_dp", "tuned"),
    *("tuned[compile=default]", GRAPHS, "tuned[compile=default,graphs=true]"),
)
_NVIDIA_SMI = f"command -v nvidia-smi || {{ echo there is no nvidia-smi; exit {NOT_RUN}; }}; nvidia-smi"
_PLUGINS = ("-p", "pytest_timeout", "-p", "no:cacheprovider")
_STREAM_TESTS, _GRAPH_TESTS = "tests/gpu/test_streams.py", "tests/gpu/test_graphs.py"
_FIRST_STREAMS, _REFUSALS = "lanes2 or missing or layer or policies", "refuses"

Names = tuple[str, ...]
Say = Callable[[str], object]


@dataclass(frozen=True)
class Plan:
    """On `count` GPUs.

    `on_workers` are pytest's options for tests that run side by side. `failed` are the tests that call 2 runs again.
    """

    count: int
    out: Path
    on_workers: Names = ()
    is_rehearsal: bool = False
    failed: Names = ()

    def lanes(self, *indices: int) -> Lanes:
        return tuple(f"cuda:{index}" for index in indices)


def steps_of(plan: Plan, call: int | None = None) -> list[Step]:
    """Of a call, or all steps with longer limits. Several GPUs are compared without a call alone."""
    if call is not None:
        return list({1: _first_call, 2: _second_call, 3: _third_call}[call](plan))
    steps = [
        *_first_call(plan),
        *_second_call(plan),
        *_third_call(plan),
        *_others(),
        *(_several(plan) if plan.count > 1 else ()),
    ]
    return [replace(step, limit_s=PATIENCE * step.limit_s) for step in steps]


def _first_call(plan: Plan) -> Iterator[Step]:
    yield Step("nvidia_smi", ("sh", "-c", _NVIDIA_SMI), 10)
    yield _tests("step", 45, "tests/gpu/test_step.py", *plan.on_workers)
    yield _tests("graphs", 30, _GRAPH_TESTS, "-k", f"not ({_REFUSALS})")
    yield _tests("questions", 55, "tests/gpu/test_questions.py", "-s")
    yield _tests("streams", 50, _STREAM_TESTS, "-k", _FIRST_STREAMS)
    yield _compare("launch_bound", 120, plan, ("mlp", 64), [plan.lanes(0, 0)], (*_COMPARED, GRAPHS))
    rest = ("tests/gpu/test_steady_state.py", "tests/gpu/test_draws.py", "tests/gpu/test_traces.py")
    yield _tests("steady_state", 45, *rest)
    yield _tests("refusals", 20, _GRAPH_TESTS, "-k", _REFUSALS)


def _second_call(plan: Plan) -> Iterator[Step]:
    if plan.failed:
        yield _tests("failed", 25, *plan.failed)
    chosen = ("-k", "pause and (lanes2 or policies or missing)", *plan.on_workers)
    # The other tests set more than the users' 8 connections.
    sanitizer = {"TORCH_CUDA_SANITIZER": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    yield _tests("sanitizer", 45, _STREAM_TESTS, *chosen, **sanitizer)
    # On an H200 a case took 7 s beside its steps, so a second round would not fit.
    yield _compare("compute_bound", 100, plan, ("transformer", 8), [plan.lanes(0, 0)], _COMPARED, "--rounds", "1")
    steps = ("--rounds", "1", "--steps-per-sample", "20")
    yield _compare("ahead", 60, plan, ("mlp", 64), [plan.lanes(0, 0)], _AHEAD, *steps)
    shown = ("--variants", f"tuned,{GRAPHS}", "--devices", "+".join(plan.lanes(0, 0)))
    yield _module("trace", 40, "dpbench", "trace", "mlp/small", *shown, "--output", str(plan.out / "trace"))
    yield _module("machine", 25, "benchmarks.machine_file", str(plan.out / MACHINE_FILE))


def _third_call(plan: Plan) -> Iterator[Step]:
    yield _tests("compiled", 100, "tests/gpu/test_compiled.py")
    for name, work in (("compiled_launch_bound", ("mlp", 64)), ("compiled_compute_bound", ("transformer", 8))):
        asked = ("--dtypes", "autocast-bfloat16", "--rounds", "1")
        yield _compare(name, 170, plan, work, [plan.lanes(0, 0)], _COMPILED, *asked)


def _others() -> Iterator[Step]:
    yield _tests("other_streams", 70, _STREAM_TESTS, "-k", f"not ({_FIRST_STREAMS})")
    rest = ("tests/gpu/test_instruments.py", "tests/gpu/test_machine_file.py", "tests/gpu/test_several.py")
    yield _tests("other_tests", 70, *rest)


def _several(plan: Plan) -> Iterator[Step]:
    """On 2, 4, 8 and so on and all GPUs, one for each lane; and their projection."""
    numbers = [*(2**power for power in range(1, plan.count) if 2**power < plan.count), plan.count]
    apart = [plan.lanes(*range(number)) for number in numbers]
    limit_s, small, large = 60 * (1 + len(apart)), ("mlp", max(64, plan.count)), ("transformer", max(8, 4 * plan.count))
    yield _compare("several_launch_bound", limit_s, plan, small, apart, (*_SCHEMES, GRAPHS))
    yield _compare("several_compute_bound", limit_s, plan, large, apart, _SCHEMES)
    yield _compare("several_ahead", 60, plan, small, apart[-1:], _AHEAD, "--steps-per-sample", "20")
    # A torch that is too old for the simulator runs no projection; it prints the command to run elsewhere.
    yield _module(
        "projected", 10 * plan.count, "benchmarks.instruments.gpu_summary", str(plan.out), passing=(0, NOT_RUN)
    )


def _module(name: str, limit_s: float, module: str, *arguments: str, passing: tuple[int, ...] = (0,)) -> Step:
    return Step(name, (sys.executable, "-m", module, *arguments), limit_s, passing=passing)


def _tests(name: str, limit_s: float, *arguments: str, **environment: str) -> Step:
    # A test that hangs shows where, before the step is cut. Other plugins on the machine may not fit this pytest.
    options = ("-m", "gpu", "-q", "-rfE", "--tb=short", "--maxfail=12", "-o", "faulthandler_timeout=15", *_PLUGINS)
    command = (sys.executable, "-m", "pytest", *options, *arguments)
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
    return Step(name, command, limit_s, Kind.TESTS, environment)


def _compare(
    name: str, limit_s: float, plan: Plan, work: tuple[str, int], lists: list[Lanes], variants: Names, *more: str
) -> Step:
    size, budget_s = ("tiny", 1) if plan.is_rehearsal else ("small", round(limit_s * 2 / 3))
    rounds = () if "--rounds" in more else ("--rounds", "1" if plan.is_rehearsal else "2")
    asked = ("--workloads", f"{work[0]}/{size}", "--batch", str(work[1]), "--variants", ",".join(variants))
    where = ("--devices", ",".join("+".join(lanes) for lanes in lists), "--results", str(plan.out / name))
    command = ("compare", *asked, *where, *rounds, "--budget", f"{budget_s}s", *more)
    step = _module(name, limit_s, "dpbench", *command)
    wanted = frozenset(key for lanes in lists for key in _keys(lanes, variants))
    return replace(step, kind=Kind.COMPARISON, wanted=wanted)


def _keys(lanes: Lanes, variants: Names) -> list[Key]:
    """`single` on the first lane, whatever its parameters."""
    keys = {variant: lanes[:1] if variant.startswith("single") else lanes for variant in ("single", *variants)}
    return list(keys.items())


class CannotStartError(Exception):
    """One line on what this machine lacks or what is wrong with an option."""


def main() -> int:
    begin_s, options = time.monotonic(), parse()
    environment = os.environ | {"PYTHONPATH": f"{SITE}{os.pathsep}{ROOT}", "PYTHONUNBUFFERED": "1"}
    try:
        if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
            raise CannotStartError(f"out: {options.out} is not empty; allowed: a new or an empty folder")
        plan = Plan(0, options.out, is_rehearsal=options.rehearse, failed=failed_tests(options.failed))
        plan = placed(plan, prepare(options.wheels, environment))
        steps = {step.name: step for step in steps_of(plan, options.call)}
        if unknown := ", ".join(sorted({*options.steps} - {*steps})):
            raise CannotStartError(f"steps: {unknown}; allowed: {', '.join(steps)}")
        options.out.mkdir(parents=True, exist_ok=True)
        output = (options.out / "output.txt").open("w")
    except (OSError, CannotStartError) as error:
        print(f"gpu: {error}; nothing was run", file=sys.stderr)
        return 2
    facts: dict[str, object] = {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "devices": plan.lanes(*range(plan.count)),
        "call": options.call,
        "is_rehearsal": options.rehearse,
        "start_up_s": round(time.monotonic() - begin_s, 1),
    }
    with output:

        def say(text: str) -> None:
            if output.tell() < _MOST_OUTPUT:
                output.write(text)
                output.flush()
            print(text, end="", flush=True)

        if not plan.on_workers:
            say("gpu: pytest-xdist cannot be imported, so all tests run in one process\n")
        deadline_s = begin_s + CALLS_S[options.call] - RESERVE_S if options.call else float("inf")
        wanted = [step for name, step in steps.items() if name in (options.steps or steps)]
        return run_all(wanted, environment, options.out, deadline_s, facts, say)


def failed_tests(words: Sequence[str]) -> tuple[str, ...]:
    """The words, or ids of tests that failed in a summary. Raise CannotStartError for another file."""
    if len(words) != 1 or not words[0].endswith(".json"):
        return tuple(words)
    try:
        rows = json.loads(Path(words[0]).read_text())["steps"]
        return tuple(dict.fromkeys(name for row in rows for name in row["failed"]))
    except (ValueError, LookupError, TypeError):
        raise CannotStartError(f"failed: {words[0]} is no summary of make gpu") from None


def prepare(wheels: Path, environment: Mapping[str, str], modules: Sequence[str] = MODULES) -> dict[str, Any]:
    """Unpack the wheels, and return what `look` prints. Raise CannotStartError if a module cannot be imported."""
    shutil.rmtree(SITE, ignore_errors=True)
    if paths := sorted(map(str, wheels.glob("*.whl"))):
        # Without their dependencies: those of torch stay the machine's.
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
        if subprocess.run([*pip, "--target", str(SITE), *paths], check=False).returncode:
            raise CannotStartError(f"the wheels in {wheels} cannot be installed")
    command = [
        sys.executable,
        "-c",
        "import sys; from benchmarks.instruments.on_gpu import look; look(sys.argv[1:])",
        *modules,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=ROOT)
    if done.returncode:
        raise CannotStartError(f"{sys.executable}: {(done.stderr.strip() or 'it crashed').splitlines()[-1]}")
    machine: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if lacking := machine["lacking"]:
        raise CannotStartError(f"{sys.executable} cannot import {', '.join(lacking)}; `make gpu-wheels` fetches wheels")
    return machine


def look(modules: Sequence[str]) -> None:
    """Print which modules cannot be imported here, and what torch sees. It also opens CUDA, as each step does."""
    lacking = {}
    for name in (*modules, "xdist"):
        try:
            importlib.import_module(name)
        except Exception as error:
            lacking[name] = f"{name} ({type(error).__name__})"
    has_xdist = lacking.pop("xdist", None) is None
    facts = {"lacking": [*lacking.values()], "has_xdist": has_xdist, "torch": "", "devices": 0}
    with suppress(Exception):  # an error of CUDA is left to the tests
        import torch

        devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        facts |= {"torch": torch.__version__, "devices": devices}
        torch.zeros(1, device="cuda")
    print(json.dumps(facts))


def placed(plan: Plan, machine: Mapping[str, Any]) -> Plan:
    """The plan for this machine. Raise CannotStartError without a GPU."""
    workers = ("-p", "xdist", "--numprocesses", str(min(_MOST_WORKERS, os.cpu_count() or 1)))
    plan = replace(plan, on_workers=workers if machine["has_xdist"] else ())
    if machine["devices"]:
        return replace(plan, count=machine["devices"])
    raise CannotStartError(f"{sys.executable}: torch {machine['torch']} sees no CUDA device")


def run(step: Step, environment: Mapping[str, str], limit_s: float, say: Callable[[str], object]) -> End:
    """Pass on each line that the step prints. Interrupt it at the limit, and kill it `GRACE_S` later."""
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    begin_s = time.monotonic()
    with subprocess.Popen(
        step.command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=ROOT,
        env={**environment, **step.environment},
        start_new_session=True,
        preexec_fn=_prepare,  # noqa: PLW1509 - no thread runs yet: the timers start later
    ) as process:
        ends = {limit_s: signal.SIGINT, limit_s + GRACE_S: signal.SIGKILL}
        timers = [Timer(after_s, _end, (process, how)) for after_s, how in ends.items()]
        for timer in timers:
            timer.start()
        try:
            for line in process.stdout or ():
                tail.append(line.rstrip())
                say(line)
            code = process.wait()
        finally:
            for timer in timers:
                timer.cancel()
            _end(process, signal.SIGKILL)
    seconds = time.monotonic() - begin_s
    return End(code, seconds >= limit_s, seconds, tuple(tail))


def _prepare() -> None:
    """Let SIGINT end this process, and let the kernel kill it when its parent dies (prctl(2)).

    A shell starts background commands with SIGINT ignored, and their children inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process: "subprocess.Popen[str]", how: signal.Signals) -> None:
    """Signal the process and its children, if they still run."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, how)


def run_all(
    steps: Sequence[Step], environment: dict[str, str], out: Path, deadline_s: float, facts: dict[str, object], say: Say
) -> int:
    """In order until the deadline, with a summary after each; return the exit code."""
    rows, number, summary = [Row(step.name) for step in steps], 0, out / "summary.json"
    write_summary(summary, facts, rows, None)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # the summary says what was not done
    try:
        for number, step in enumerate(steps):
            limit_s = min(step.limit_s, deadline_s - time.monotonic())
            if limit_s < min(LEAST_S, step.limit_s):
                rows[number] = replace(rows[number], note="no time was left")
                continue
            say(f"gpu: {step.name}, {limit_s:.0f} s at most\n")
            rows[number] = row_of(step, run(step, environment, limit_s, say), limit_s, out / step.name)
            for page in out.glob("*/*.html"):  # `dpbench report` writes it again
                page.unlink()
            say(f"gpu: {step.name} {rows[number].outcome}: {rows[number].note}\n")
            write_summary(summary, facts, rows, None)
        code = code_of(rows)
    except KeyboardInterrupt:
        code = INTERRUPTED
        if number < len(rows) and rows[number].outcome is Outcome.NOT_STARTED:
            rows[number] = replace(rows[number], outcome=Outcome.CUT, note="interrupted")
    finally:
        signal.signal(signal.SIGTERM, before)
    write_summary(summary, facts, rows, code)
    say("".join(f"gpu: {line}\n" for line in [*lines_of(rows), f"exit code {code}; the output is in {out}"]))
    return code


def parse() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form, allow_abbrev=False)
    dated = ROOT / "results" / "gpu" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    parser.add_argument("--call", type=int, choices=tuple(CALLS_S))
    parser.add_argument("--failed", nargs="+", default=())
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or dated))
    parser.add_argument("--wheels", type=Path, default=ROOT / "build" / "wheels")
    parser.add_argument("--steps", nargs="+", default=())
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    if options.failed and options.call != 2:
        parser.error("--failed needs --call 2")
    return options


if __name__ == "__main__":
    sys.exit(main())
