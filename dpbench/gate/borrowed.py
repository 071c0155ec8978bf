"""The benchmarks of asv and pytest that a gate's settings mean: which both commits have, and whether they work.

    on head      on base
    works        works       compared
    works        missing     new
    works        fails       left out, with a note
    fails        works       the gate cannot judge
    fails        fails       left out, with a note; the gate cannot judge if the settings name it

A benchmark that its owner skips is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from pydantic import ValidationError

from dpbench.cases.explain import nearest
from dpbench.errors import GateError
from dpbench.gate.judgement import CounterChange
from dpbench.gate.settings import BorrowedBenchmark, Selection
from dpbench.processes.count_all import run_jobs
from dpbench.processes.interpret import ending, last_lines
from dpbench.processes.launch import Launcher
from dpbench.processes.messages import CountJob, Listed, Listing, Listings, ListJob, ListJobs
from dpbench.processes.start import child_command
from dpbench.records.counts import CountRecord

LISTER = child_command("dpbench.processes.child.listing")
_TIMEOUT_S = 120.0
_MOST = 10_000
_VALUES = 3


@dataclass
class Chosen:
    """The benchmarks that both commits have, those that only head has, and notes."""

    both: dict[str, BorrowedBenchmark] = field(default_factory=dict)
    new: dict[str, BorrowedBenchmark] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def timed(self) -> tuple[BorrowedBenchmark, ...]:
        return tuple(each for each in self.both.values() if not each.is_value)


def look_up(selections: Sequence[Selection], base: Path, head: Path, launch: Launcher) -> Chosen:
    """Return what the selections mean in these folders. Raises GateError."""
    jobs = [
        ListJob(suite=suite, text=text, pattern=selection.pattern, folder=str(folder))
        for folder in (base, head)
        for selection in selections
        for suite, text in [selection.wanted]
    ]
    end = launch(LISTER, ListJobs(jobs=tuple(jobs), timeout_s=_TIMEOUT_S).model_dump_json(), _TIMEOUT_S * _MOST)
    try:
        listings = Listings.model_validate_json(end.record).listings
    except ValidationError:
        raise GateError(": ".join([f"listing failed: {ending(end)}", *last_lines(end.tail)[-1:]])) from None
    chosen, count = Chosen(), len(selections)
    for selection, old, new in zip(selections, listings[:count], listings[count:], strict=True):
        choose(selection, old, new, chosen)
    if selections and not chosen.both and not chosen.new:
        raise GateError(f"benchmark: none can be measured: {chosen.notes[0]}; allowed: one that works on both sides")
    return chosen


def choose(selection: Selection, old: Listing, new: Listing, chosen: Chosen) -> None:
    """Add to `chosen` what one selection means. Raises GateError if head lacks it, or breaks it. Pure."""
    suite, text = selection.wanted
    olds = {listed.name: listed for listed in old.meant}
    if not new.meant:
        why = "only base has it" if olds else "head has no such benchmark"
        names = [name for full in new.all for name in (full, full.partition("(" if suite == "asv" else "[")[0])]
        problem = f"; {new.problems[0]}" if new.problems else ""
        raise GateError(
            f"benchmark: {suite}: {text!r}: {why}{nearest(text, names)}{problem}; allowed: one that head has"
        )
    names_of_head = {listed.name for listed in new.meant}
    chosen.notes += [f"{name}: only base has it" for name in olds if name not in names_of_head]
    for listed in new.meant:
        note = _note(listed, olds.get(listed.name), is_named=not selection.pattern)
        chosen.notes += [f"{listed.name}: {note}"] if note else []
        if listed.refused is None and (listed.name not in olds or olds[listed.name].refused is None):
            place = chosen.both if listed.name in olds else chosen.new
            place[listed.name] = BorrowedBenchmark(
                name=listed.name,
                workload=f"{suite} {listed.name}",
                cores=selection.cores,
                threshold=selection.threshold,
                is_value=listed.is_value,
            )


def _note(new: Listed, old: Listed | None, *, is_named: bool) -> str | None:
    """Return what is notable about a benchmark, or None. Raises GateError if the gate cannot judge without it."""
    if new.refused is not None:
        works_on_base = old is not None and old.refused is None
        if not new.is_skipped and (works_on_base or is_named):
            raise GateError(f"benchmark {new.name!r}: head: {new.refused}")
        return f"left out: {new.refused}"
    if old is None:
        return "new: nothing to hold it against, because base does not have it"
    if old.refused is not None:
        return f"left out: base: {old.refused}"
    return "base and head have different code of the benchmark itself" if old.version != new.version else None


def compare_values(
    benchmarks: Sequence[BorrowedBenchmark], base: Path, head: Path, launch: Launcher
) -> tuple[list[CounterChange], list[str]]:
    """Take each value three times on each side. Return those that differ, and which cannot be compared."""
    jobs = [
        CountJob(case=benchmark.case(1, ("cpu",)), folder=str(folder), value=True)
        for benchmark in benchmarks
        for folder in (base, head)
        for _ in range(_VALUES)
    ]
    records = run_jobs(jobs, launch=launch) if jobs else ()
    found = [
        value_change(benchmark, records[i : i + _VALUES], records[i + _VALUES : i + 2 * _VALUES])
        for benchmark, i in zip(benchmarks, range(0, len(records), 2 * _VALUES), strict=True)
    ]
    return [each for each in found if isinstance(each, CounterChange)], [
        each for each in found if isinstance(each, str)
    ]


def value_change(
    benchmark: BorrowedBenchmark, olds: Sequence[CountRecord], news: Sequence[CountRecord]
) -> CounterChange | str | None:
    """Return the change of a value, None if there is none, or the reason why it cannot be compared. Pure.

    Less is better, as for asv. A growth up to the threshold is no change.
    """
    before, after = (
        [each.counts.value for each in side if each.counts and each.counts.value is not None] for side in (olds, news)
    )
    for side, records, values in (("base", olds, before), ("head", news, after)):
        if len(values) < len(records):
            reason = next(each.reason for each in records if each.reason)
            return f"{benchmark.name}: not compared: {side}: {reason}"
    tolerated = benchmark.threshold * abs(median(before))
    if max(before) - min(before) > tolerated:
        return f"{benchmark.name}: not compared: base's own values differ: {min(before):g} to {max(before):g}"
    growth = median(after) - median(before)
    if abs(growth) <= tolerated:
        return None
    unit = olds[0].counts.unit if olds[0].counts else ""
    return CounterChange(
        benchmark=benchmark.name,
        counter=f"value ({unit})",
        base=median(before),
        head=median(after),
        is_worse=growth > 0,
    )
