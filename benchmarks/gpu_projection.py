"""Project what `make gpu` measured, on the machine file that it wrote, and print both with their ratio.

    python -m benchmarks.gpu_projection results/gpu/DATE

It runs on any machine, with the folder of `make gpu` alone. The projection needs a torch that the simulator supports.
Without one it prints the commands to run elsewhere.

A machine file describes all devices. So comparisons are projected whose lanes have a device each and use all of them,
and `single` everywhere. Lanes that share a device are left out.

Exit codes: 0 printed, 1 a projection failed, 2 no folder, 77 nothing to project here.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu_steps import MACHINE_FILE, NOT_RUN
from benchmarks.gpu_summary import read_records
from dpbench.projection.described.machine_file import load_machine

PROJECTED = ("single", "torch_dp", "naive", "tuned", "ddp")
"""The variants that have a rule for a projection."""
OLD_TORCH = "the simulator was tested with torch"


@dataclass(frozen=True)
class Asked:
    """A projection to ask for: `variants` with a global `batch`, and whether the host runs ahead of the devices."""

    workload: str
    batch: int
    is_ahead: bool
    variants: tuple[str, ...]

    def command(self, machine: Path) -> list[str]:
        """Return the words of the command after ``dpbench``."""
        words = ["project", self.workload, "--machine", str(machine), "--batch", str(self.batch)]
        return [*words, "--variants", ",".join(self.variants), *(["--ahead"] if self.is_ahead else [])]


@dataclass(frozen=True)
class Measured:
    """The median step time of a case, over its rounds, and the projection that it is compared with."""

    workload: str
    variant: str
    batch: int
    devices: int
    is_ahead: bool
    step_s: float

    @property
    def name(self) -> str:
        """The case in words."""
        ahead = ", steps ahead" if self.is_ahead else ""
        return f"{self.workload} batch {self.batch} on {self.devices}{ahead}: {self.variant}"

    def asked(self, devices: int) -> tuple[str, int, bool]:
        """Return workload, batch and ahead of its projection on so many devices.

        `single` is projected with one device's share of the batch, so its own batch is asked for on each device.
        """
        batch = self.batch * devices if self.variant == "single" else self.batch
        return self.workload, batch, self.is_ahead


def measured_of(records: Iterable[Mapping[str, Any]], devices: int) -> list[Measured]:
    """Return what can be projected on a machine with so many devices, in the order of the records."""
    times: dict[tuple[str, str, int, int, bool], list[float]] = {}
    for record in records:
        case = record["case"]
        lanes, variant, steps = case["devices"], str(case["variant"]), case["steps_per_sample"]
        wanted = len(lanes) == len(set(lanes)) and len(lanes) == (1 if variant == "single" else devices)
        if record["outcome"] == "ok" and variant in PROJECTED and wanted and case["batch"] % len(lanes) == 0:
            key = case["workload"], variant, case["batch"], len(lanes), steps > 1
            times.setdefault(key, []).append(median(record["samples_s"]) / steps)
    return [Measured(w, v, b, n, ahead, median(found)) for (w, v, b, n, ahead), found in times.items()]


def asked_of(measured: Iterable[Measured], devices: int) -> list[Asked]:
    """Return the projections to ask for, one command for each workload, batch and kind of step."""
    variants: dict[tuple[str, int, bool], list[str]] = {}
    for each in measured:
        variants.setdefault(each.asked(devices), []).append(each.variant)
    return [Asked(*key, tuple(dict.fromkeys(names))) for key, names in variants.items()]


def lines_of(
    measured: Sequence[Measured], projected: Mapping[tuple[str, int, bool, str], Mapping[str, float]], devices: int
) -> Iterator[str]:
    """Yield a line for each case with its measured and projected step time, and a last one with the ratios' range."""
    ratios = []
    for each in measured:
        time_s = projected.get((*each.asked(devices), each.variant))
        if time_s is None:
            continue
        ratio = time_s["mid"] / each.step_s
        ratios.append(ratio)
        low, mid, high = (1000 * time_s[name] for name in ("low", "mid", "high"))
        inside = "inside" if time_s["low"] <= each.step_s <= time_s["high"] else "outside"
        yield (
            f"{each.name}: measured {1000 * each.step_s:.3g} ms, projected {mid:.3g} [{low:.3g}, {high:.3g}] ms, "
            f"ratio {ratio:.2f}, {inside} the interval"
        )
    if not ratios:
        yield "no case has a projection"
        return
    yield f"{len(ratios)} cases: projected / measured from {min(ratios):.2f} to {max(ratios):.2f}"


def times_of(shown: Mapping[str, Any], asked: Asked) -> Iterator[tuple[tuple[str, int, bool, str], dict[str, float]]]:
    """Yield the step times in the JSON of `dpbench project`, by what was asked for and the variant."""
    for variant in shown["projections"][0]["variants"]:
        if "step_time_s" in variant:
            yield (asked.workload, asked.batch, asked.is_ahead, variant["variant"]), variant["step_time_s"]


def main(words: Sequence[str], say: Callable[[str], object] = print) -> int:
    if len(words) != 1 or not Path(words[0]).is_dir():
        say(f"gpu_projection: {' '.join(words) or 'no folder'}: not allowed; allowed: a folder that make gpu wrote")
        return 2
    out = Path(words[0])
    machine = out / MACHINE_FILE
    if not machine.exists():
        say(f"{machine} is not there, so nothing can be projected; the step `machine` says why")
        return NOT_RUN
    devices = load_machine(str(machine)).devices
    records = [record for folder in sorted(out.iterdir()) if folder.is_dir() for record in read_records(folder)[0]]
    measured = measured_of(records, devices)
    if not measured:
        say("no comparison measured what can be projected: lanes with a device each, on all devices")
        return NOT_RUN
    return _project(out, machine, devices, measured, say)


def _project(out: Path, machine: Path, devices: int, measured: Sequence[Measured], say: Callable[[str], object]) -> int:
    projected: dict[tuple[str, int, bool, str], Mapping[str, float]] = {}
    wanted = asked_of(measured, devices)
    for asked in wanted:
        command = [sys.executable, "-m", "dpbench", *asked.command(machine), "--json"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            say(done.stderr.strip())
            if OLD_TORCH not in done.stderr:
                return 1
            for each in wanted:
                say(f"dpbench {shlex.join(each.command(machine))}")
            say(f"not projected here: torch is too old; elsewhere run: python -m benchmarks.gpu_projection {out}")
            return NOT_RUN
        projected |= dict(times_of(json.loads(done.stdout), asked))
    for line in lines_of(measured, projected, devices):
        say(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
