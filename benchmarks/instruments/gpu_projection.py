"""Project what `make gpu` measured, on the machine file that it wrote, and print both with their ratio.

    python -m benchmarks.instruments.gpu_projection results/gpu/DATE

It runs on any machine, with the folder of `make gpu` alone. With a torch that the simulator does not support, it prints
the commands to run elsewhere. A machine file describes all devices, so only comparisons are projected whose lanes have
a device each and use all of them, and `single` everywhere.

Exit codes: 0 printed, 1 a projection failed, 2 no folder, 77 nothing to project here.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.instruments.gpu_steps import MACHINE_FILE, NOT_RUN
from benchmarks.instruments.gpu_summary import read_records
from dpbench.projection.machine_file import load_machine

PROJECTED = ("single", "torch_dp", "naive", "tuned", "ddp")
"""The variants that have a rule for a projection."""
OLD_TORCH = "the simulator was tested with torch"


class Asked(NamedTuple):
    """With a global batch; `single` gets one device's share of it. `is_ahead` is whether the host runs ahead."""

    workload: str
    batch: int
    is_ahead: bool

    def command(self, machine: Path, variants: Iterable[str]) -> list[str]:
        """The words after ``dpbench``."""
        words = ["project", self.workload, "--machine", str(machine), "--batch", str(self.batch)]
        return [*words, "--variants", ",".join(variants), *(["--ahead"] if self.is_ahead else [])]


Key = tuple[Asked, str]
"""What is projected, and a variant."""


def measured_of(records: Iterable[Mapping[str, Any]], devices: int) -> dict[Key, float]:
    """Seconds that can be projected on so many devices: medians over rounds."""
    times_s: dict[Key, list[float]] = {}
    for record in records:
        case = record["case"]
        lanes, variant, steps = case["devices"], str(case["variant"]), case["steps_per_sample"]
        wanted = len(lanes) == len(set(lanes)) and len(lanes) == (1 if variant == "single" else devices)
        if record["outcome"] == "ok" and variant in PROJECTED and wanted and case["batch"] % len(lanes) == 0:
            asked = Asked(case["workload"], case["batch"] * devices // len(lanes), steps > 1)
            times_s.setdefault((asked, variant), []).append(median(record["samples_s"]) / steps)
    return {key: median(of_rounds_s) for key, of_rounds_s in times_s.items()}


def lines_of(
    measured: Mapping[Key, float], projected: Mapping[Key, Mapping[str, float]], devices: int
) -> Iterator[str]:
    """A line for each case with its measured and projected step time, and a last one with the ratios' range."""
    ratios = [projected[key]["mid"] / step_s for key, step_s in measured.items() if key in projected]
    for key, ratio in zip([key for key in measured if key in projected], ratios, strict=True):
        (workload, batch, is_ahead), variant = key
        low, mid, high = (1000 * projected[key][name] for name in ("low", "mid", "high"))
        count, step_ms = 1 if variant == "single" else devices, 1000 * measured[key]
        name = f"{workload} batch {batch * count // devices} on {count}{', steps ahead' * is_ahead}: {variant}"
        times = f"measured {step_ms:.3g} ms, projected {mid:.3g} [{low:.3g}, {high:.3g}] ms"
        yield f"{name}: {times}, ratio {ratio:.2f}, {'inside' if low <= step_ms <= high else 'outside'} the interval"
    text = f"{len(ratios)} cases: projected / measured from {min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
    yield text or "no case has a projection"


def main(words: Sequence[str], say: Callable[[str], object] = print) -> int:
    if len(words) != 1 or not Path(words[0]).is_dir():
        say(f"gpu_projection: {' '.join(words) or 'no folder'}: not allowed; allowed: a folder that make gpu wrote")
        return 2
    out, machine = Path(words[0]), Path(words[0]) / MACHINE_FILE
    if not machine.exists():
        say(f"{machine} is not there, so nothing can be projected; the step `machine` says why")
        return NOT_RUN
    devices = load_machine(str(machine)).devices
    measured = measured_of((record for folder in sorted(out.glob("*/")) for record in read_records(folder)), devices)
    if not measured:
        say("no comparison measured what can be projected: lanes with a device each, on all devices")
        return NOT_RUN
    wanted = {asked: [variant for other, variant in measured if other == asked] for asked, _ in measured}
    projected: dict[Key, Mapping[str, float]] = {}
    for asked, variants in wanted.items():
        command = [sys.executable, "-m", "dpbench", *asked.command(machine, variants), "--json"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            say(done.stderr.strip())
            if OLD_TORCH not in done.stderr:
                return 1
            for other, names in wanted.items():
                say(f"dpbench {shlex.join(other.command(machine, names))}")
            say(f"torch is too old to project here; elsewhere: python -m benchmarks.instruments.gpu_projection {out}")
            return NOT_RUN
        rows = json.loads(done.stdout)["projections"][0]["variants"]
        projected |= {(asked, row["variant"]): row["step_time_s"] for row in rows if "step_time_s" in row}
    for line in lines_of(measured, projected, devices):
        say(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
