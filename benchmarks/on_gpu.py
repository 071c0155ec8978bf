"""All checks for a machine with GPUs, in one command.

    python -m benchmarks.on_gpu [--out DIR] [--wheels DIR] [--minutes N] [--rounds 2] [--steps tests,races,...]
                                [--variants torch_dp,tuned,...] [--rehearse]

The steps are the GPU tests, races, doctor, telemetry's cost, and comparisons of variants: on lanes that share a GPU,
with several steps in a sample, and, if there are several GPUs, on two to all of them. Then `dpbench doctor` writes a
machine file of this machine, and `dpbench project` projects what was measured. Only torch must be installed. The
checkout is put on PYTHONPATH, and missing packages come from wheels, which are unpacked under build/gpu.

Each step has a time limit and is interrupted at its end; the next step runs in any case. --minutes, 9.25 by default,
count from the start of this command: pip and the first imports are part of them. What does not fit is left out in the
order of `gpu_steps.reductions`, and named; with --steps nothing is. DIR gets ``output.txt``, ``summary.json``,
``machine.toml`` and a folder of records for each comparison.

--rehearse takes the smallest workloads, hardly samples, and may take an hour. Its times mean nothing. Without a GPU two
lanes of the CPU stand for two GPUs.

Exit codes: 0 all passed, but for the projection where torch is too old for it; 1 some failed; 2 cannot start here; 3
some were cut by their limit or skipped; 130 interrupted.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from benchmarks.gpu_run import ROOT, allowance, run
from benchmarks.gpu_steps import VARIANTS, Place, Step, Work, fitted, lost, needed_s, rehearsed, steps_of
from benchmarks.gpu_summary import Outcome, Row, code_of, lines_of, row_of, write_summary

SITE = ROOT / "build" / "gpu"
MODULES = ("numpy", "psutil", "pydantic", "pynvml", "pytest", "pytest_timeout", "rich", "scipy.stats", "torch", "typer")
INTERRUPTED = 130
_MINUTES = 9.25  # a last step that ignores its interrupt has GRACE_S more: 9.5 in all
_REHEARSAL_MINUTES = 60.0
_MOST = 10_000
_COUNT = "import torch\nprint(torch.cuda.device_count() if torch.cuda.is_available() else f'torch {torch.__version__}')"
# It also opens CUDA, as each process of a step does. An error of CUDA is left to the tests.
_LACKING = """
import contextlib, importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        print(f"{name} ({type(error).__name__})", end=" ")
with contextlib.suppress(Exception):
    import torch
    torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")
"""


class CannotStartError(Exception):
    """One line on what this machine lacks or what is wrong with an option. Nothing was run."""


def main() -> int:
    begin_s = time.monotonic()
    environment = os.environ | {"PYTHONPATH": f"{SITE}{os.pathsep}{ROOT}", "PYTHONUNBUFFERED": "1"}
    try:
        options = parse()
        work = Work(variants=chosen_variants(options.variants), rounds=options.rounds)
        work = rehearsed(work) if options.rehearse else work
        chosen(steps_of(Place("cuda", 2), work, options.out), options.steps)  # names are wrong or right on any machine
        if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
            raise CannotStartError(f"out: {options.out} is not empty; allowed: a new or an empty folder")
        place = find_place(environment, is_rehearsal=options.rehearse)
        work = replace(work, start_s=prepare(options.wheels, environment))
        minutes = options.minutes or (_REHEARSAL_MINUTES if options.rehearse else _MINUTES)
        left_s = 60 * minutes - (time.monotonic() - begin_s)
        full = chosen(steps_of(place, work, options.out), options.steps)
        steps = full if options.steps or options.rehearse else fitted(place, work, options.out, left_s)
        options.out.mkdir(parents=True, exist_ok=True)
        output = (options.out / "output.txt").open("w")
    except OSError as error:
        print(f"gpu: {error.filename}: {error.strerror}; nothing was run", file=sys.stderr)
        return 2
    except CannotStartError as error:
        print(f"gpu: {error}; nothing was run", file=sys.stderr)
        return 2
    facts = {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "devices": place.apart(place.count),
        "is_rehearsal": options.rehearse,
        "minutes": minutes,
        "start_up_s": round(work.start_s, 1),
        "left_out": lost(full, steps),
    }
    with output:

        def say(text: str) -> None:
            output.write(text)
            output.flush()
            print(text, end="", flush=True)

        for line in plan_lines(full, steps, minutes, left_s):
            say(f"gpu: {line}\n")
        return run_all(steps, environment, options.out, 60 * minutes - (time.monotonic() - begin_s), facts, say)


def plan_lines(full: Sequence[Step], steps: Sequence[Step], minutes: float, left_s: float) -> list[str]:
    """Return what is planned, in lines for the user: the time, and what is left out."""
    lines = [f"{len(steps)} steps need about {needed_s(steps):.0f} s; {left_s:.0f} s of {minutes:g} minutes are left"]
    if missing := lost(full, steps):
        enough = minutes + (needed_s(full) - left_s) / 60
        lines.append(f"left out, because it does not fit: {', '.join(missing)}; --minutes {enough:.0f} hold all")
    return lines


def chosen_variants(names: str | None) -> tuple[str, ...]:
    """Return the variants in a list of names. Raise CannotStartError for an unknown name."""
    wanted = VARIANTS if names is None else tuple(names.split(","))
    if unknown := set(wanted) - set(VARIANTS):
        raise CannotStartError(f"variants: {', '.join(sorted(unknown))}; allowed: {', '.join(VARIANTS)}")
    return tuple(dict.fromkeys(wanted))


def chosen(steps: Sequence[Step], names: str | None) -> list[Step]:
    """Return the steps in a list of names such as ``tests,races``. Raise CannotStartError for an unknown name."""
    known = [step.name for step in steps]
    wanted = known if names is None else names.split(",")
    if unknown := set(wanted) - set(known):
        raise CannotStartError(f"steps: {', '.join(sorted(unknown))}; allowed: {', '.join(known)}")
    return [step for step in steps if step.name in wanted]


def find_place(environment: Mapping[str, str], *, is_rehearsal: bool) -> Place:
    """Return the devices to use. Raise CannotStartError without a GPU, except for a rehearsal."""
    said = answer(_COUNT, environment)
    if said.isdecimal():
        return Place("cuda", int(said))
    if not said.startswith("torch "):
        raise CannotStartError(f"{sys.executable}: {said}")
    if is_rehearsal:
        return Place("cpu", 2)
    raise CannotStartError(f"{sys.executable}: {said} sees no CUDA device")


def prepare(wheels: Path, environment: Mapping[str, str]) -> float:
    """Unpack the wheels. Return the seconds until a process has imported what the steps import, and opened CUDA.

    Raise CannotStartError if a module cannot be imported.
    """
    shutil.rmtree(SITE, ignore_errors=True)
    if found := sorted(map(str, wheels.glob("*.whl"))):
        # Without their dependencies: those of torch stay the machine's.
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(SITE)]
        if subprocess.run([*pip, *found], check=False).returncode:
            raise CannotStartError(f"the wheels in {wheels} cannot be installed")
    begin_s = time.monotonic()
    if lacking := answer(_LACKING, environment, *MODULES):
        raise CannotStartError(
            f"{sys.executable} cannot import {lacking}; `make gpu-wheels` fetches wheels that you can copy here"
        )
    return time.monotonic() - begin_s


def answer(code: str, environment: Mapping[str, str], *arguments: str) -> str:
    """Return the last line that the code prints, or the last line of its error."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    return (done.stdout if done.returncode == 0 else done.stderr).strip().rpartition("\n")[2]


def run_all(
    steps: Sequence[Step],
    environment: Mapping[str, str],
    out: Path,
    seconds: float,
    facts: Mapping[str, object],
    say: Callable[[str], object],
) -> int:
    """Run the steps in order, write the summary after each, and return the exit code."""
    rows = [Row(step.name) for step in steps]
    summary = out / "summary.json"
    write_summary(summary, facts, rows, None)
    deadline_s = time.monotonic() + seconds
    number = 0
    try:
        with sigterm_interrupts():
            for number, step in enumerate(steps):
                left_s = max(1.0, deadline_s - time.monotonic())
                allowed = allowance([each.needs_s for each in steps[number:]], left_s)
                say(f"gpu: {step.name}, {allowed.limit_s:.0f} s at most\n")
                end = run(step, environment, allowed, say)
                rows[number] = row_of(step, end, allowed.limit_s, out / step.name)
                say(f"gpu: {step.name} {rows[number].outcome}: {rows[number].note}\n")
                write_summary(summary, facts, rows, None)
        code = code_of(rows)
    except KeyboardInterrupt:
        code = INTERRUPTED
        if number < len(rows) and rows[number].outcome is Outcome.NOT_STARTED:
            rows[number] = replace(rows[number], outcome=Outcome.CUT, note="interrupted")
    write_summary(summary, facts, rows, code)
    say("".join(f"gpu: {line}\n" for line in [*lines_of(rows), f"exit code {code}; the output is in {out}"]))
    return code


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, so that the summary says what was not done."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CannotStartError(message)


def above_zero(kind: type[float]) -> Callable[[str], float]:
    """Return a function that reads a number of this kind, above 0 and at most 10,000."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value <= _MOST:
            raise argparse.ArgumentTypeError(f"{text!r}; allowed: a number above 0, at most {_MOST}")
        return value

    return read


def parse() -> argparse.Namespace:
    parser = _Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    dated = ROOT / "results" / "gpu" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or dated))
    parser.add_argument("--wheels", type=Path, default=ROOT / "build" / "wheels")
    parser.add_argument("--minutes", type=above_zero(float))
    parser.add_argument("--rounds", type=above_zero(int), default=2)
    parser.add_argument("--steps")
    parser.add_argument("--variants")
    parser.add_argument("--rehearse", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
