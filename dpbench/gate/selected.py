"""Which borrowed benchmarks a selection means, of those that base and head have. Pure.

asv = "time_step.Step.time_forward"    asv's name with all its parameters, or with some as asv writes them
pytest = "bench/test_step.py::test"    pytest's node id
--asv REGEX, --pytest PATH             patterns: what cannot be borrowed is left out with a note
"""

import re
from dataclasses import dataclass, field
from posixpath import normpath

from dpbench.cases.explain import nearest
from dpbench.errors import GateError
from dpbench.gate.settings import Selection, Timeable
from dpbench.records.borrowed import Kind, Listing, Suite


class BorrowedBenchmark(Timeable):
    """A benchmark that head has. `number` is the calls of a sample, calibrated on base, for all sides.

    `is_named` is whether the settings name it, and not a pattern.
    """

    suite: Suite
    kind: Kind = Kind.TIME
    number: int = 1
    is_named: bool = True
    is_torch: bool = False

    def series(self, cores: int, default_lanes: tuple[str, ...]) -> str:  # noqa: ARG002
        return f"{self.suite} {self.name}"


@dataclass
class Chosen:
    """The benchmarks that both sides have, those that only head has, by name, and notes."""

    both: dict[str, BorrowedBenchmark] = field(default_factory=dict)
    new: dict[str, BorrowedBenchmark] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def place_of(selection: Selection) -> str:
    """Return the file or folder that pytest collects for a selection; asv lists all."""
    return "" if selection.suite is Suite.ASV else normpath(selection.text.partition("::")[0])


def choose(selection: Selection, old: Listing, new: Listing, chosen: Chosen) -> None:
    """Add to `chosen` what a selection means. Raises GateError if head lacks it, or if it cannot be borrowed."""
    olds = {each.name: each for each in old.benchmarks if is_meant(selection, each.name)}
    news = {each.name: each for each in new.benchmarks if is_meant(selection, each.name)}
    if not news:
        raise GateError(_lacking(selection, new, is_in_base=bool(olds)))
    chosen.notes += [f"{name}: only base has it" for name in olds if name not in news]
    for name, listed in news.items():
        benchmark = BorrowedBenchmark(
            name=name,
            suite=selection.suite,
            kind=listed.kind,
            cores=selection.cores,
            threshold=selection.threshold,
            is_named=not selection.is_pattern,
        )
        if listed.refused is not None:
            if benchmark.is_named:
                raise GateError(f"benchmark: {selection.suite}: {name!r}: {listed.refused}")
            chosen.notes.append(f"{name}: left out: {listed.refused}")
        elif name in olds:
            chosen.both[name] = benchmark
            if olds[name].version != listed.version:
                chosen.notes.append(f"{name}: base and head have different code of the benchmark itself")
        else:
            chosen.new[name] = benchmark
            chosen.notes.append(f"{name}: new: nothing to hold it against, because base does not have it")


def is_meant(selection: Selection, name: str) -> bool:
    """Whether a selection means this benchmark: a regular expression as asv's ``--bench``, a path, or a name."""
    if selection.is_pattern and selection.suite is Suite.ASV:
        return re.search(selection.text, name) is not None
    if selection.is_pattern and ("::" not in selection.text or name.startswith(f"{selection.text}::")):
        return True  # pytest collected this path only
    return selection.text in (name, _bare(selection.suite, name))


def _bare(suite: Suite, name: str) -> str:
    """Return a benchmark's name without its parameters."""
    return name.partition("(" if suite is Suite.ASV else "[")[0]


def _lacking(selection: Selection, new: Listing, *, is_in_base: bool) -> str:
    why = "only base has it" if is_in_base else "head has no such benchmark"
    names = [name for each in new.benchmarks for name in (each.name, _bare(selection.suite, each.name))]
    problems = f"; {len(new.problems)} did not import: {new.problems[0]}" if new.problems else ""
    hint = nearest(selection.text, names)
    return f"benchmark: {selection.suite}: {selection.text!r}: {why}{hint}{problems}; allowed: one that head has"
