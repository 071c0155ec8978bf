"""All checks for a machine with GPUs, in one command, or in two short calls.

    python -m benchmarks.instruments.on_gpu [--call 1|2] [--out DIR] [--wheels DIR] [--steps NAME ...] [--rehearse]
    python -m benchmarks.instruments.on_gpu --call 2 --failed DIR/summary.json     or ids of tests

Call 1 ends within 6 min 40 s, call 2 within 5 min 20 s; `gpu_steps` has their steps. Without --call all steps run, with
longer limits and more tests, and on several GPUs also comparisons with a GPU for each lane.

Only torch must be installed. The checkout is put on PYTHONPATH, and missing packages come from wheels, which are
unpacked under build/gpu. A step is interrupted at its limit, and the next one runs in any case. DIR gets the output, a
summary, the probe's answers, a machine file and a folder of records for each comparison: at most 8 files in a call.
--rehearse takes the smallest workloads, and without a GPU two lanes of the CPU.

Exit codes: 0 all passed; 1 some failed; 2 cannot start here; 3 some were cut, skipped or not started; 130 interrupted.
"""

import argparse
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.instruments.gpu_run import GRACE_S, ROOT, run
from benchmarks.instruments.gpu_steps import CALLS_S, Plan, Step, steps_of
from benchmarks.instruments.gpu_summary import Outcome, Row, code_of, lines_of, row_of, write_summary

SITE = ROOT / "build" / "gpu"
MODULES = ("numpy", "psutil", "pydantic", "pynvml", "pytest", "pytest_timeout", "rich", "scipy.stats", "torch", "typer")
INTERRUPTED = 130
LEAST_S = 5.0
RESERVE_S = GRACE_S + 3.0  # of a call: a step may ignore its interrupt, and the summary follows
_MOST_WORKERS = 6
_MOST_OUTPUT = 15 << 20  # a lent machine returns no file above 16 MiB
Say = Callable[[str], object]


class CannotStartError(Exception):
    """One line on what this machine lacks or what is wrong with an option."""


def main() -> int:
    begin_s, options = time.monotonic(), parse()
    environment = os.environ | {"PYTHONPATH": f"{SITE}{os.pathsep}{ROOT}", "PYTHONUNBUFFERED": "1"}
    try:
        if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
            raise CannotStartError(f"out: {options.out} is not empty; allowed: a new or an empty folder")
        plan = Plan("cuda", 0, options.out, is_rehearsal=options.rehearse, failed=failed_tests(options.failed))
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
        torch.zeros(1, device="cuda" if devices else "cpu")
    print(json.dumps(facts))


def placed(plan: Plan, machine: Mapping[str, Any]) -> Plan:
    """The plan for this machine. Raise CannotStartError without a GPU, except for a rehearsal."""
    workers = ("-p", "xdist", "--numprocesses", str(min(_MOST_WORKERS, os.cpu_count() or 1)))
    plan = replace(plan, on_workers=workers if machine["has_xdist"] else ())
    if machine["devices"]:
        return replace(plan, count=machine["devices"])
    if plan.is_rehearsal:
        return replace(plan, kind="cpu", count=2)
    raise CannotStartError(f"{sys.executable}: torch {machine['torch']} sees no CUDA device")


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
