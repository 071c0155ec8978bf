"""All checks for a machine with a GPU, in one command.

    python benchmarks/on_gpu.py [--out DIR] [--wheels DIR] [--minutes 9] [--rounds 2] [--steps tests,races,...]

The steps are the GPU tests, races, doctor, telemetry's cost, and comparisons of variants on lanes of one GPU. Only
torch must be installed. The checkout is put on PYTHONPATH, and missing packages come from wheels, which are unpacked
under build/gpu. Each step has a share of the time that is left, and is interrupted at its end. The next step runs in
any case. The output also goes to DIR/STEP.txt. Exit codes: 0 all passed, 1 some failed, 2 cannot start here.
"""

import argparse
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "gpu"
MODULES = ("numpy", "psutil", "pydantic", "pynvml", "pytest", "pytest_timeout", "rich", "scipy", "torch", "typer")
LANES = "cuda:0,cuda:0*2,cuda:0*4"
GRACE_S = 15.0
PR_SET_PDEATHSIG = 1  # linux/prctl.h
LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Step:
    """A command to run. ``{budget}`` in `arguments` becomes the seconds that it may measure.

    `arguments` are those of Python. `weight` is the step's share of the time. `passing` are the exit codes that pass.
    """

    name: str
    arguments: tuple[str, ...]
    weight: float
    environment: Mapping[str, str] = field(default_factory=dict)
    passing: tuple[int, ...] = (0,)


def pytest(name: str, weight: float, *arguments: str, **environment: str) -> Step:
    command = ("-m", "pytest", "-m", "gpu", "-raP", "-p", "pytest_timeout", "-p", "no:cacheprovider", *arguments)
    # Other plugins on the machine may not fit this version of pytest.
    return Step(name, command, weight, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment})


def compare(name: str, workload: str, batch: int, out: Path, rounds: int) -> Step:
    asked = ("--workloads", workload, "--batch", str(batch), "--devices", LANES, "--rounds", str(rounds))
    command = ("-m", "dpbench", "compare", *asked, "--budget", "{budget}s", "--results", str(out))
    return Step(name, command, 6)


def steps_of(out: Path, rounds: int) -> list[Step]:
    races = ("-k", "pause and (lanes2 or policies or missing)", "tests/gpu/test_streams.py")
    return [
        pytest("tests", 5, "tests/gpu"),
        pytest("races", 2, *races, TORCH_CUDA_SANITIZER="1"),
        Step(
            "doctor", ("-m", "dpbench", "doctor", "--quick"), 1, passing=(0, 1)
        ),  # 1: a finding makes measurements unreliable
        Step("telemetry", ("benchmarks/telemetry_cost.py", "--windows", "10", "--steps", "100"), 1),
        compare("launch_bound", "mlp/small", 64, out, rounds),
        compare("compute_bound", "transformer/small", 8, out, rounds),
    ]


def main() -> int:
    options = parse()
    environment = os.environ | {"PYTHONPATH": f"{SITE}{os.pathsep}{ROOT}", "PYTHONUNBUFFERED": "1"}
    try:
        steps = chosen(steps_of(options.out, options.rounds), options.steps)
    except ValueError as error:
        return refuse(str(error))
    if reason := why_unsupported(options.wheels, environment):
        return refuse(reason)
    options.out.mkdir(parents=True, exist_ok=True)
    ends = dict(run_all(steps, environment, options.out, 60 * options.minutes))
    failed = [step.name for step in steps if ends[step.name] not in step.passing]
    print(f"gpu: {'failed: ' + ', '.join(failed) if failed else 'all passed'}; the output is in {options.out}")
    return 1 if failed else 0


def refuse(reason: str) -> int:
    print(f"gpu: {reason}; nothing was run", file=sys.stderr)
    return 2


def why_unsupported(wheels: Path, environment: Mapping[str, str]) -> str | None:
    """Unpack the wheels. Return why this interpreter cannot start, or None."""
    if said := answer("import torch\nif not torch.cuda.is_available(): print(torch.__version__)", environment):
        return f"{sys.executable}: {said if 'Error' in said else f'torch {said} sees no CUDA device'}"
    shutil.rmtree(SITE, ignore_errors=True)
    if found := sorted(map(str, wheels.glob("*.whl"))):
        # Without their dependencies: torch's own, such as numpy, stay the machine's.
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(SITE)]
        if subprocess.run([*pip, *found], check=False).returncode:
            return f"the wheels in {wheels} cannot be installed"
    look = f"from importlib.util import find_spec\nprint(*[name for name in {MODULES} if not find_spec(name)])"
    lacking = answer(look, environment)
    return (
        f"{sys.executable} lacks {lacking}; `make gpu-wheels` fetches wheels that you can copy here"
        if lacking
        else None
    )


def answer(code: str, environment: Mapping[str, str]) -> str:
    """Return the last line that the code prints, or the last line of its error."""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, env=environment)
    return (done.stdout if done.returncode == 0 else done.stderr).strip().rpartition("\n")[2]


def chosen(steps: Sequence[Step], names: str | None) -> list[Step]:
    """Return the steps in a list of names such as ``tests,races``.

    Raises ValueError for an unknown name.
    """
    known = [step.name for step in steps]
    wanted = known if names is None else names.split(",")
    if unknown := set(wanted) - set(known):
        raise ValueError(f"steps: {', '.join(sorted(unknown))}; allowed: {', '.join(known)}")
    return [step for step in steps if step.name in wanted]


def run_all(
    steps: Sequence[Step], environment: Mapping[str, str], out: Path, seconds: float
) -> Iterator[tuple[str, int]]:
    """Run the steps in order. Yield each step's name and exit code."""
    deadline_s = time.monotonic() + seconds
    for number, step in enumerate(steps):
        weights = sum(each.weight for each in steps[number:])
        limit_s = max(1.0, deadline_s - time.monotonic()) * step.weight / weights
        begin_s = time.monotonic()
        print(f"gpu: {step.name}, {limit_s:.0f} s at most", flush=True)
        code = run(step, environment, out / f"{step.name}.txt", limit_s)
        said = "passed" if code in step.passing else f"failed with {code}"
        print(f"gpu: {step.name} {said} after {time.monotonic() - begin_s:.0f} s", flush=True)
        yield step.name, code


def run(step: Step, environment: Mapping[str, str], log: Path, limit_s: float) -> int:
    """Run a step and return its exit code.

    Interrupt it at the limit, and kill it `GRACE_S` later.
    """
    arguments = [argument.replace("{budget}", f"{0.7 * limit_s:.0f}") for argument in step.arguments]
    with (
        log.open("w") as file,
        subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=ROOT,
            env={**environment, **step.environment},
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - no thread runs yet: the timers start later
        ) as process,
    ):
        signals = [
            Timer(limit_s, end, (process, signal.SIGINT)),
            Timer(limit_s + GRACE_S, end, (process, signal.SIGKILL)),
        ]
        for timer in signals:
            timer.start()
        try:
            for line in process.stdout or ():
                file.write(line)
                print(line, end="", flush=True)
            return process.wait()
        finally:
            for timer in signals:
                timer.cancel()
            end(process, signal.SIGKILL)


def end_with_parent() -> None:
    """Make the kernel kill this process when its parent dies, as at a time limit (prctl(2))."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end(process: "subprocess.Popen[str]", how: signal.Signals) -> None:
    """Send a signal to the process and its children, if they still run."""
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        return


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    dated = ROOT / "results" / "gpu" / f"{datetime.now(UTC):%Y-%m-%d}"
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or dated))
    parser.add_argument("--wheels", type=Path, default=ROOT / "build" / "wheels")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
