"""How the steps of `make gpu` ended, in ``summary.json``; and what they measured, beside its projection.

    python -m benchmarks.instruments.gpu_summary results/gpu/DATE

The command prints each measured step time, the projected one on the machine file of that folder, and their ratio. It
runs on any machine. A machine file describes all devices, so only comparisons are projected whose lanes have a device
each and use all of them, and `single` everywhere.

Exit codes: 0 printed, 1 a projection failed, 2 no folder, 77 nothing to project here.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum, StrEnum, auto
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from dpbench.text.files import replace_text

_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")
_LAST_LINE = re.compile(r"\d+ \w+.* in [\d.]+s")
_FAILED = re.compile(r"(?:FAILED|ERROR) (tests/.+?)(?: - .*)?")
PROJECTED = ("single", "torch_dp", "naive", "tuned", "ddp")
"""The variants that have a rule for a projection."""
OLD_TORCH = "the simulator was tested with torch"
NOT_RUN = 77
"""The exit code of a script that cannot run here, as in automake's tests."""
MACHINE_FILE = "machine.toml"
Lanes = tuple[str, ...]
Key = tuple[str, Lanes]
"""A variant and its lanes."""


class Kind(Enum):
    """A step's success is judged accordingly."""

    TESTS = auto()
    COMPARISON = auto()
    SCRIPT = auto()


@dataclass(frozen=True)
class Step:
    """A command to run, and its limit. `wanted` are the variants that a comparison must have times of."""

    name: str
    command: tuple[str, ...]
    limit_s: float
    kind: Kind = Kind.SCRIPT
    environment: Mapping[str, str] = field(default_factory=dict)
    passing: tuple[int, ...] = (0,)
    wanted: frozenset[Key] = frozenset()


@dataclass(frozen=True)
class End:
    """`is_cut` is whether its time was up before. `tail` are its last lines."""

    exit_code: int
    is_cut: bool
    seconds: float
    tail: tuple[str, ...]


class Outcome(StrEnum):
    """CUT: its time was up. SKIPPED: all or a part of it could not run here."""

    PASSED = "passed"
    FAILED = "failed"
    CUT = "cut"
    SKIPPED = "skipped"
    NOT_STARTED = "not started"


@dataclass(frozen=True)
class Row:
    """`note` says what was done, or why not. `failed` are the ids of tests."""

    name: str
    outcome: Outcome = Outcome.NOT_STARTED
    note: str = ""
    seconds: float = 0.0
    limit_s: float = 0.0
    exit_code: int | None = None
    failed: tuple[str, ...] = ()


def row_of(step: Step, end: End, limit_s: float, folder: Path) -> Row:
    """`folder` holds the records of the step's comparison."""
    failed: tuple[str, ...] = ()
    if step.kind is Kind.TESTS:
        failure, gap, note = _of_tests(end)
        failed = tuple(dict.fromkeys(match[1] for line in end.tail if (match := _FAILED.fullmatch(line))))
    elif step.kind is Kind.COMPARISON:
        failure, gap, note = _of_comparison(step, read_records(folder))
    else:
        failure, gap, note = None, end.exit_code == NOT_RUN and NOT_RUN not in step.passing, ""
    has_passed = end.exit_code in step.passing or (step.kind is Kind.SCRIPT and gap)
    is_cut = end.is_cut and not has_passed
    if failure is None and not (has_passed or is_cut):
        failure = f"exit code {end.exit_code}"
    outcome = Outcome.FAILED if failure else Outcome.CUT if is_cut else Outcome.SKIPPED if gap else Outcome.PASSED
    text = "; ".join(filter(None, (failure, "its time was up" if is_cut else "", note or "".join(end.tail[-1:]))))
    return Row(step.name, outcome, text, round(end.seconds, 1), round(limit_s, 1), end.exit_code, failed)


def _of_tests(end: End) -> tuple[str | None, bool, str]:
    """Why the tests failed, whether none ran, and pytest's last line of counts."""
    line = next((line for line in reversed(end.tail) if _LAST_LINE.search(line)), "")
    counts = Counter({name.rstrip("s"): int(number) for number, name in _COUNT.findall(line)})
    failed = counts["failed"] + counts["error"]
    is_skipped = end.exit_code == 0 and counts["passed"] == 0
    return f"{failed} of the tests failed" if failed else None, is_skipped, line.strip("= ")


def _of_comparison(step: Step, records: Sequence[dict[str, Any]]) -> tuple[str | None, bool, str]:
    """Why it failed, whether it lacks a variant without a failure, and what was recorded."""
    outcomes = Counter(record["outcome"] for record in records)
    bad = [f"{count} of {len(records)} records {name}" for name, count in outcomes.items() if name != "ok"]
    cases = [record["case"] for record in records if record["outcome"] == "ok"]
    lacking = step.wanted - {(str(case["variant"]), tuple(case["devices"])) for case in cases}
    names = ", ".join(sorted(f"{variant} on {'+'.join(lanes)}" for variant, lanes in lacking))
    note = f"{outcomes['ok']} records" + (f", no times of {names}" if names else "")
    return ", ".join(bad) or None, bool(lacking), note


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Without a line that was cut off."""
    texts = [path.read_text().rpartition("\n")[0] for path in sorted(folder.glob("*.jsonl"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def code_of(rows: Iterable[Row]) -> int:
    """1 if a step failed, else 3 if one was cut, skipped or not started, else 0."""
    outcomes = {row.outcome for row in rows}
    return 1 if Outcome.FAILED in outcomes else 0 if outcomes == {Outcome.PASSED} else 3


def lines_of(rows: Iterable[Row]) -> list[str]:
    return [f"{row.name:22}{row.outcome:12}{row.seconds:5.0f} s  {row.note}".rstrip() for row in rows]


def write_summary(path: Path, facts: Mapping[str, Any], rows: Iterable[Row], exit_code: int | None) -> None:
    """Replace the file. `exit_code` is None while steps run."""
    content = {"schema": 2, **facts, "exit_code": exit_code, "steps": [asdict(row) for row in rows]}
    replace_text(path, json.dumps(content, indent=2) + "\n")


class Asked(NamedTuple):
    """With a global batch; `single` gets one device's share of it. `is_ahead` is whether the host runs ahead."""

    workload: str
    batch: int
    is_ahead: bool

    def command(self, machine: Path, variants: Iterable[str]) -> list[str]:
        """The words after ``dpbench``."""
        words = ["project", self.workload, "--machine", str(machine), "--batch", str(self.batch)]
        return [*words, "--variants", ",".join(variants), *(["--ahead"] if self.is_ahead else [])]


ProjectedCase = tuple[Asked, str]
"""What is projected, and a variant."""


def measured_of(records: Iterable[Mapping[str, Any]], devices: int) -> dict[ProjectedCase, float]:
    """Seconds that can be projected on so many devices: medians over rounds."""
    times_s: dict[ProjectedCase, list[float]] = {}
    for record in records:
        case = record["case"]
        lanes, variant, steps = case["devices"], str(case["variant"]), case["steps_per_sample"]
        wanted = len(lanes) == len(set(lanes)) and len(lanes) == (1 if variant == "single" else devices)
        if record["outcome"] == "ok" and variant in PROJECTED and wanted and case["batch"] % len(lanes) == 0:
            asked = Asked(case["workload"], case["batch"] * devices // len(lanes), steps > 1)
            times_s.setdefault((asked, variant), []).append(median(record["samples_s"]) / steps)
    return {key: median(of_rounds_s) for key, of_rounds_s in times_s.items()}


def projection_lines(
    measured: Mapping[ProjectedCase, float], projected: Mapping[ProjectedCase, Mapping[str, float]], devices: int
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
        say(f"gpu_summary: {' '.join(words) or 'no folder'}: not allowed; allowed: a folder that make gpu wrote")
        return 2
    out, machine = Path(words[0]), Path(words[0]) / MACHINE_FILE
    if not machine.exists():
        say(f"{machine} is not there, so nothing can be projected; the step `machine` says why")
        return NOT_RUN
    devices = tomllib.loads(machine.read_text())["devices"]
    measured = measured_of((record for folder in sorted(out.glob("*/")) for record in read_records(folder)), devices)
    if not measured:
        say("no comparison measured what can be projected: lanes with a device each, on all devices")
        return NOT_RUN
    wanted = {asked: [variant for other, variant in measured if other == asked] for asked, _ in measured}
    projected: dict[ProjectedCase, Mapping[str, float]] = {}
    for asked, variants in wanted.items():
        command = [sys.executable, "-m", "dpbench", *asked.command(machine, variants), "--json"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            say(done.stderr.strip())
            if OLD_TORCH not in done.stderr:
                return 1
            say(f"torch is too old to project here; elsewhere: python -m benchmarks.instruments.gpu_summary {out}")
            return NOT_RUN
        rows = json.loads(done.stdout)["projections"][0]["variants"]
        projected |= {(asked, row["variant"]): row["step_time_s"] for row in rows if "step_time_s" in row}
    for line in projection_lines(measured, projected, devices):
        say(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
