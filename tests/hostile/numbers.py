"""Numbers and dates beyond a float, 64 bits or a calendar, in each field of each file that a page is made of.

A page leaves bad lines out and names them. So a command ends as for any other file, and never as an error in dpbench.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from dpbench.records.row import to_line
from tests.elastic.making import made_records
from tests.hostile.attack import Files
from tests.hostile.files import gate_files, record_line
from tests.report.page.making_commits import commit_records
from tests.report.page.making_gates import gate_lines
from tests.report.page.making_page import gpu_records, lane_records

NUMBERS = (10**400, -(10**400), 2**63, -(2**63), 2**31, 1e308, -1e308, 5e-324, 1e-300, 0, -1, 0.5)
DATES = ("0001-01-01T00:00:00+14:00", "0001-01-01", "9999-12-31T23:59:59-14:00", "1000-01-01T00:00:00+00:00")
REPORT, HISTORY = ("report", "r.jsonl"), ("report", "r.jsonl", "--history")
EXPORT = ("export", "r.jsonl")
GATE = ("gate", "--base=HEAD~1", "--tiers=2")
TIME = {"low": 1.0, "mid": 1.5, "high": 2.0}
PROJECTED = {"variant": "tuned", "step_time_s": TIME, "speed_up": TIME, "bound_by": [], "hidden_share": 0.5}
PROJECTION = {"machine": "m", "workload": "w", "batch": 8, "math": "x", "advice": "x", "variants": [PROJECTED]}
FILES: dict[str, tuple[tuple[str, ...], str, list[bytes]]] = {
    "records": (REPORT, "r.jsonl", list(map(to_line, lane_records(rounds=2)))),
    "records of GPUs": (REPORT, "r.jsonl", list(map(to_line, gpu_records(rounds=2)))),
    "records of commits": (HISTORY, "r.jsonl", list(map(to_line, commit_records()))),
    "elastic records": (REPORT, "r.jsonl", list(map(to_line, made_records()))),
    "gates": (HISTORY, "r.jsonl", list(map(to_line, gate_lines()))),
    "projections": (("report", "r.json"), "r.json", [json.dumps({"projections": [PROJECTION]}).encode()]),
    "a record to export": (EXPORT, "r.jsonl", [record_line({})]),
    "a record for the gate": (GATE, "results/r.jsonl", [record_line({})]),
}
Path = tuple[str | int, ...]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Return the place of each number and date of a JSON value, and of each list of numbers."""
    children: Sequence[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        children = tuple(value.items())
    elif isinstance(value, list):
        children = tuple(enumerate(value[:2]))
    is_number = isinstance(value, (int, float, list)) and not isinstance(value, bool)
    if is_number or (path and path[-1] == "started_at"):
        yield path
    for key, child in children:
        yield from paths(child, (*path, key))


def changed(line: bytes, path: Path, new: object) -> bytes:
    """Return the line with `new` at a place: in a list, as each of its numbers. Without the place it stays."""
    top = place = json.loads(line)
    try:
        for key in path[:-1]:
            place = place[key]
        old = place[path[-1]]
    except (KeyError, IndexError, TypeError):
        return line
    place[path[-1]] = [new if isinstance(value, float) else value for value in old] if isinstance(old, list) else new
    return json.dumps(top).encode() + b"\n"


def changed_numbers() -> Iterator[Callable[[], tuple[tuple[str, ...], Files]]]:
    """Return an attack for every place of every file and every value."""
    for name, (_, _, lines) in FILES.items():
        for path in paths(json.loads(lines[0])):
            for new in DATES if path[-1] == "started_at" else NUMBERS:
                yield partial(_attack, name, path, new)


def _attack(name: str, path: Path, new: object) -> tuple[tuple[str, ...], Files]:
    words, file, lines = FILES[name]
    return words, {
        **(gate_files() if words is GATE else {}),
        file: b"".join(changed(line, path, new) for line in lines),
    }
