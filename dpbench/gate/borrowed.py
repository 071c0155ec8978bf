"""The benchmarks of asv and pytest that a gate's settings mean: which both commits have, and whether they work.

    on head      on base
    works        works       compared
    works        missing     new
    works        fails       left out, with a note
    fails        works       the gate cannot judge
    fails        fails       left out, with a note; the gate cannot judge if the settings name it

A benchmark that its owner skips is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from dpbench.cases.explain import nearest
from dpbench.errors import GateError
from dpbench.gate.judgement import CounterChange
from dpbench.gate.settings import BorrowedBenchmark, Selection
from dpbench.processes.interpret import ending, last_lines
from dpbench.processes.launch import Launcher
from dpbench.processes.messages import Listed, Listing, Listings, ListJob, ListJobs
from dpbench.processes.start import child_command

LISTER = child_command("dpbench.processes.child.listing")
_TIMEOUT_S = 120.0
_MOST = 10_000


@dataclass
class Chosen:
    """The benchmarks that both commits have, those that only head has, and notes."""

    both: dict[str, BorrowedBenchmark] = field(default_factory=dict)
    new: dict[str, BorrowedBenchmark] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


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


def settled(
    first: Sequence[CounterChange], second: Sequence[CounterChange], thresholds: Mapping[str, float]
) -> tuple[list[CounterChange], list[str], list[str]]:
    """Return the changes that two counts of borrowed benchmarks share, notes on the others, and why none can be told.

    A counter must be the same again. A value must grow or shrink by more than its threshold, and that of base must be
    the same up to the threshold. Pure.
    """
    kept, notes, gaps = list[CounterChange](), list[str](), list[str]()
    others = {(change.benchmark, change.counter): change for change in second}
    for change in first:
        other = others.get((change.benchmark, change.counter))
        if not change.counter.startswith("value "):
            kept += [change] if change == other else []
            notes += [] if change == other else [f"{change.benchmark}: {change.counter} differs by itself; left out"]
        elif other and None not in (numbers := (change.base, change.head, other.base, other.head)):
            base, head, base_again, head_again = (float(number or 0) for number in numbers)
            tolerated = thresholds[change.benchmark] * abs(base)
            if abs(base_again - base) > tolerated:
                gaps.append(f"{change.benchmark}: base's own values differ: {base:g}, {base_again:g}")
            elif min(abs(head - base), abs(head_again - base_again)) > tolerated:
                kept.append(change)
    return kept, notes, gaps
