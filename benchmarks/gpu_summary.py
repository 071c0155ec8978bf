"""How the steps of `make gpu` ended, on the screen and in ``summary.json``."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu_run import End
from benchmarks.gpu_steps import Kind, Step

_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")
_LAST_LINE = re.compile(r"\d+ \w+.* in [\d.]+s")


class Outcome(StrEnum):
    """How a step ended. CUT: its time was up. SKIPPED: all or a part of it could not run here."""

    PASSED = "passed"
    FAILED = "failed"
    CUT = "cut"
    SKIPPED = "skipped"
    NOT_STARTED = "not started"


@dataclass(frozen=True)
class Row:
    """One step of the summary. `note` says what was done, or why not.

    `busy_percent` is of a comparison: by case id and device, the share of busy SMs, or else of the time in which a
    kernel ran, as NVML reported it; the median over rounds, or the reason why there is none. `lines` are of a
    projection: measured and projected step times. A skip of an optional step is no gap.
    """

    name: str
    outcome: Outcome = Outcome.NOT_STARTED
    note: str = ""
    seconds: float | None = None
    limit_s: float | None = None
    exit_code: int | None = None
    busy_percent: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    is_optional: bool = False


def row_of(step: Step, end: End, limit_s: float, folder: Path) -> Row:
    """Return how the step ended. `folder` holds the records of its comparison."""
    busy: dict[str, dict[str, float | str]] = {}
    if step.kind is Kind.TESTS:
        failure, gap, note = _of_tests(end)
    elif step.kind is Kind.COMPARISON:
        records, torn = read_records(folder)
        busy = busy_percent(records)
        failure, gap, note = _of_comparison(step, records, torn)
    else:
        failure, gap, note = None, end.exit_code in step.skipping, ""
    has_passed = end.exit_code in step.passing or (step.kind in (Kind.SCRIPT, Kind.PROJECTION) and gap)
    is_cut = end.is_cut and not has_passed
    if failure is None and not (has_passed or is_cut):
        failure = f"exit code {end.exit_code}"
    outcome = Outcome.SKIPPED if gap else Outcome.PASSED
    if failure is not None:
        outcome = Outcome.FAILED
    elif is_cut:
        outcome = Outcome.CUT
    last = end.tail[-1] if end.tail else ""
    text = "; ".join(filter(None, (failure, "its time was up" if is_cut else "", note or last)))
    lines = end.tail[:-1] if step.kind is Kind.PROJECTION else ()
    times_s = round(end.seconds, 1), round(limit_s, 1)
    return Row(step.name, outcome, text, *times_s, end.exit_code, busy, lines, step.is_optional)


def _of_tests(end: End) -> tuple[str | None, bool, str]:
    """Return why the tests failed, whether none ran, and pytest's last line of counts."""
    line = next((line for line in reversed(end.tail) if _LAST_LINE.search(line)), "")
    counts = Counter({name.rstrip("s"): int(number) for number, name in _COUNT.findall(line)})
    failed = counts["failed"] + counts["error"]
    is_skipped = end.exit_code == 0 and counts["passed"] == 0
    return f"{failed} of the tests failed" if failed else None, is_skipped, line.strip("= ")


def _of_comparison(step: Step, records: Sequence[dict[str, Any]], torn: int) -> tuple[str | None, bool, str]:
    """Return why it failed, whether it lacks a variant without a failure, and what was recorded."""
    outcomes = Counter(record["outcome"] for record in records)
    bad = {name: count for name, count in outcomes.items() if name != "ok"}
    failure = ", ".join(f"{count} of {len(records)} records {name}" for name, count in bad.items()) or None
    if torn:
        failure = "; ".join(filter(None, (failure, f"{torn} torn lines")))
    timed = {(_name(record), tuple(record["case"]["devices"])) for record in records if record["outcome"] == "ok"}
    lacking = sorted(f"{variant} on {'+'.join(lanes)}" for variant, lanes in step.wanted - timed)
    note = f"{outcomes['ok']} records" + (f", no times of {', '.join(lacking)}" if lacking else "")
    return failure, bool(lacking), note


def _name(record: Mapping[str, Any]) -> str:
    return str(record["case"]["variant"])


def read_records(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the records in a step's folder, and the number of lines that are none."""
    records, torn = [], 0
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                torn += 1
    return records, torn


def busy_percent(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float | str]]:
    """Return how busy each device of each case was. `Row` has the definition."""
    values: dict[tuple[str, str], list[float]] = {}
    reasons: dict[tuple[str, str], str] = {}
    for record in records:
        for device, found in ((record.get("metrics") or {}).get("telemetry") or {}).items():
            key = record["case"]["id"], device
            values.setdefault(key, [])
            if isinstance(found, str):
                reasons[key] = found
                continue
            for reading in (found["sm_busy_percent"], found["kernel_running_percent"]):
                if reading["value"] is not None:
                    values[key].append(reading["value"])
                    break
                reasons[key] = reading["reason"]
    busy: dict[str, dict[str, float | str]] = {}
    for (case, device), found in values.items():
        busy.setdefault(case, {})[device] = median(found) if found else reasons[case, device]
    return busy


def code_of(rows: Iterable[Row]) -> int:
    """Return 1 if a step failed, else 3 if one was cut, skipped without being optional, or not started, else 0."""
    outcomes = {row.outcome for row in rows if not (row.is_optional and row.outcome is Outcome.SKIPPED)}
    if Outcome.FAILED in outcomes:
        return 1
    return 0 if outcomes <= {Outcome.PASSED} else 3


def lines_of(rows: Iterable[Row]) -> list[str]:
    """Return a line for each step, and the projected times below theirs."""
    return [line for row in rows for line in (_line_of(row), *(f"    {line}" for line in row.lines))]


def _line_of(row: Row) -> str:
    seconds = "" if row.seconds is None else f"{row.seconds:.0f} s"
    return f"{row.name:22}{row.outcome:12}{seconds:>7}  {row.note}".rstrip()


def write_summary(path: Path, facts: Mapping[str, Any], rows: Iterable[Row], exit_code: int | None) -> None:
    """Replace the file. `exit_code` is None while steps run. A reader finds the old file or the new one, whole."""
    content = {"schema": 1, **facts, "exit_code": exit_code, "steps": [asdict(row) for row in rows]}
    temporary = path.with_suffix(".part")
    with temporary.open("w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
