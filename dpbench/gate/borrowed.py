"""The benchmarks of asv and pytest that a gate's settings mean: which both commits have, and whether they work.

    on head      on base
    works        works       compared
    works        missing     new
    works        fails       left out, with a note
    fails        works       the gate cannot judge
    fails        fails       left out, with a note; the gate cannot judge if the settings name it
    skipped      works       lost: the verdict is undecided, unless something is worse
    missing      works       lost

Other skipped benchmarks are left out. The verdict counts what is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from dpbench.cases.explain import nearest
from dpbench.errors import GateError
from dpbench.gate.judgement import CounterChange
from dpbench.gate.settings import LIMIT_S, BorrowedBenchmark, Selection
from dpbench.measure.borrowed.lent import PEAK_UNIT
from dpbench.processes.interpret import ending, last_lines
from dpbench.processes.launch import Launcher
from dpbench.processes.messages import Listed, Listing, Listings, ListJob, ListJobs
from dpbench.processes.start import child_command

LISTER = child_command("dpbench.processes.child.listing")
_MOST = 10_000
_LEAST_PEAK_BYTES = 1 << 20
"""The tolerated change of peak memory: free memory that a fork inherits differs by some 100 KB."""


@dataclass
class Chosen:
    """The benchmarks that both commits have, those that only head has, and notes.

    `lost` are the names of benchmarks that work on base, and that head skips or lacks. `left_out` are those of others
    that are not compared, and errors of files that head cannot import.
    """

    both: dict[str, BorrowedBenchmark] = field(default_factory=dict)
    new: dict[str, BorrowedBenchmark] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def look_up(selections: Sequence[Selection], base: Path, head: Path, launch: Launcher) -> Chosen:
    """Return what the selections mean in these folders. Raises GateError."""
    jobs = [
        ListJob(suite=suite, text=text, pattern=selection.pattern, folder=str(folder))
        for folder in (base, head)
        for selection in selections
        for suite, text in [selection.wanted]
    ]
    end = launch(LISTER, ListJobs(jobs=tuple(jobs), timeout_s=LIMIT_S).model_dump_json(), LIMIT_S * _MOST)
    try:
        listings = Listings.model_validate_json(end.record).listings
    except ValidationError:
        raise GateError(": ".join([f"listing failed: {ending(end)}", *last_lines(end.tail)[-1:]])) from None
    chosen, count = Chosen(), len(selections)
    for selection, old, new in zip(selections, listings[:count], listings[count:], strict=True):
        choose(selection, old, new, chosen)
    if selections and not chosen.both and not chosen.new and not chosen.lost:
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
    gone = olds.keys() - {listed.name for listed in new.meant}
    chosen.notes += [f"{name}: only base has it" for name in olds if name in gone]
    problems = {"base": old.problems, "head": new.problems} if selection.pattern else {}
    chosen.notes += [f"{side}: not read: {text}" for side, texts in problems.items() for text in texts]
    chosen.notes += [note for note in new.notes if note not in chosen.notes]
    chosen.left_out += problems.get("head", ())
    works_on_base = {name for name, listed in olds.items() if listed.refused is None}
    absent = [name for name in olds if name in gone] + [each.name for each in new.meant if each.refused is not None]
    chosen.lost += [name for name in absent if name in works_on_base]
    chosen.left_out += [name for name in absent if name not in works_on_base]
    chosen.left_out += [
        each.name for each in new.meant if each.refused is None and each.name in olds.keys() - works_on_base
    ]
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
                limit_s=max(LIMIT_S, 2 * max(listed.timeouts_s[:1], default=0)),
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

    A counter must be the same again. A value must grow both times, or shrink both times, by more than its threshold.
    That of base must be the same up to the threshold. Peak memory has a least threshold. Pure.
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
            least = _LEAST_PEAK_BYTES if PEAK_UNIT in change.counter else 0
            tolerated = max(thresholds[change.benchmark] * abs(base), least)
            if abs(base_again - base) > tolerated:
                gaps.append(f"{change.benchmark}: base's own values differ: {base:g}, {base_again:g}")
            elif min(abs(head - base), abs(head_again - base_again)) > tolerated and (
                (head > base) == (head_again > base_again)
            ):
                kept.append(change)
    return kept, notes, gaps
