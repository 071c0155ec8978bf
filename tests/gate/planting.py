"""Commits with a regression planted in the wrapper, as folders, and what tier 0 says of them."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.gate.judgement import CounterChange
from dpbench.gate.tier0.counters import compare_records, count_side
from dpbench.results.counts import CountRecord
from dpbench.run.launch import launch
from dpbench.sweep.case import Case

WRAPPER = Path("dpbench/parallel")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Edit:
    """Replaces the first `old` by `new` in a file of the wrapper."""

    file: str
    old: str
    new: str


def planted(folder: Path, *edits: Edit) -> Path:
    """Write a copy of the wrapper with these edits into a new folder, and return the folder."""
    shutil.copytree(ROOT / WRAPPER, folder / WRAPPER, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in edits:
        path = folder / WRAPPER / edit.file
        text = path.read_text()
        assert edit.old in text, f"{edit.file} has no {edit.old!r}"
        path.write_text(text.replace(edit.old, edit.new, 1))
    return folder


def counted(cases: Sequence[Case], folder: Path) -> dict[Case, CountRecord]:
    """Count these cases of a commit as tier 0 does."""
    return dict(zip(cases, count_side("base", cases, folder, launch), strict=True))


def worse(base: dict[Case, CountRecord], cases: Sequence[Case], folder: Path) -> list[CounterChange]:
    """The counters that tier 0 calls worse in these cases of the folder's commit."""
    head = count_side("head", cases, folder, launch)
    found = compare_records([base[case] for case in cases], head)
    return [change for change in found if change.is_worse]
