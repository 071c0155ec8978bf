"""How the steps of `make gpu` ended, on the screen and in ``summary.json``."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks.instruments.gpu_run import End
from benchmarks.instruments.gpu_steps import NOT_RUN, Kind, Step
from dpbench.text.files import replace_text

_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")
_LAST_LINE = re.compile(r"\d+ \w+.* in [\d.]+s")
_FAILED = re.compile(r"(?:FAILED|ERROR) (tests/.+?)(?: - .*)?")


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
