"""Benchmarks of asv and pytest that a project has already: whether they work on both sides, and what a call does.

Each is examined once on each side. Counters that differ are counted once more, with their lines of code, and only those
that are the same again are reported. Values are taken three times on each side.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from dpbench.errors import GateError
from dpbench.gate.judgement import Blame, CounterChange
from dpbench.gate.selected import BorrowedBenchmark, Chosen, choose, place_of
from dpbench.gate.settings import Selection
from dpbench.gate.tier0 import TOLERATED, blame_of
from dpbench.processes.borrow import ask_borrowed
from dpbench.processes.launch import Launcher
from dpbench.processes.messages import BorrowedAnswer, BorrowedRequest, BorrowedTask, Side
from dpbench.records.borrowed import Examined, Kind, Listing
from dpbench.records.counts import diff

_VALUES = 3
_NOTABLE_BYTES = 1024
_PEAK = "call.python_peak_bytes"


@dataclass(frozen=True)
class Borrowed:
    """The borrowed benchmarks to time, the counters and values that differ, the names that only head has, and notes.

    `counted` is the number of benchmarks whose counters or values were compared. `gap` says which values of base
    differ by themselves; it is None otherwise.
    """

    timed: tuple[BorrowedBenchmark, ...] = ()
    changes: tuple[CounterChange, ...] = ()
    blames: tuple[Blame, ...] = ()
    counted: int = 0
    new: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    gap: str | None = None


@dataclass(frozen=True)
class _Pair:
    """What one call of a benchmark does on both sides."""

    benchmark: BorrowedBenchmark
    base: Examined
    head: Examined


@dataclass(frozen=True)
class _Sides:
    """Both sides, and how to ask about their benchmarks."""

    base: Side
    head: Side
    launch: Launcher

    def look_up(self, selections: Sequence[Selection]) -> Chosen:
        """Return what the selections mean. Raises GateError."""
        wanted = list(dict.fromkeys((selection.suite, place_of(selection)) for selection in selections))
        requests = [
            BorrowedRequest(task=BorrowedTask.LIST, suite=suite, side=side, name=place)
            for side in (self.base, self.head)
            for suite, place in wanted
        ]
        answers = ask_borrowed(requests, launch=self.launch)
        olds = dict(zip(wanted, answers[: len(wanted)], strict=True))
        news = dict(zip(wanted, answers[len(wanted) :], strict=True))
        chosen = Chosen()
        for selection in selections:
            key = selection.suite, place_of(selection)
            if (listing := news[key].listing) is None:
                raise GateError(f"head: {selection.suite}: {news[key].reason}")
            if olds[key].listing is None:
                chosen.notes.append(f"base: {selection.suite}: {olds[key].reason}")
            choose(selection, olds[key].listing or Listing(), listing, chosen)
        return chosen

    def ask(
        self, task: BorrowedTask, benchmarks: Sequence[BorrowedBenchmark], side: Side, *, details: bool = False
    ) -> tuple[BorrowedAnswer, ...]:
        requests = [
            BorrowedRequest(task=task, suite=each.suite, side=side, name=each.name, kind=each.kind, details=details)
            for each in benchmarks
        ]
        return ask_borrowed(requests, launch=self.launch)

    def examine(
        self, benchmarks: Sequence[BorrowedBenchmark], notes: list[str], *, details: bool = False
    ) -> list[_Pair]:
        """Return those that work on both sides. Add a note for each other one. Raises GateError if head breaks one."""
        olds, news = (
            self.ask(BorrowedTask.EXAMINE, benchmarks, side, details=details) for side in (self.base, self.head)
        )
        pairs = list[_Pair]()
        for benchmark, old, new in zip(benchmarks, olds, news, strict=True):
            if old.examined is not None and new.examined is not None:
                pairs.append(_Pair(benchmark, old.examined, new.examined))
            elif old.examined is not None or (benchmark.is_named and not new.is_skipped):
                raise GateError(f"head: {benchmark.name}: {new.reason or f'works, but on base: {old.reason}'}")
            else:
                notes.append(f"{benchmark.name}: left out: {old.reason}")
        return pairs


def borrow(
    selections: Sequence[Selection],
    base: Side,
    head: Side,
    launch: Launcher,
    *,
    with_counters: bool,
    progress: Callable[[str], object] = lambda _: None,
) -> Borrowed:
    """Look the selections up on both sides, and examine what they name.

    Raises GateError if a benchmark does not work on head, or if none is left.
    """
    sides = _Sides(base, head, launch)
    progress("listing the benchmarks of base and of head")
    chosen = sides.look_up(selections)
    notes = chosen.notes
    progress(f"examining {len(chosen.both) + len(chosen.new)} benchmarks")
    pairs = sides.examine(list(chosen.both.values()), notes)
    new = list(_working(sides, list(chosen.new.values()), notes))
    if not pairs and not new:
        raise GateError(f"benchmark: none can be measured: {notes[0]}; allowed: one that works on both sides")
    timed = [pair for pair in pairs if pair.benchmark.kind is Kind.TIME]
    valued = [pair.benchmark for pair in pairs if pair.benchmark.kind is Kind.VALUE]
    changes, blames = _confirmed(timed, sides, notes) if with_counters else ([], ())
    gaps = list[str]()
    changes += _value_changes(valued, sides, gaps, notes)
    return Borrowed(
        timed=tuple(_calibrated(timed, sides)),
        changes=tuple(changes),
        blames=blames,
        counted=len(valued) + (len(timed) if with_counters else 0),
        new=tuple(new),
        notes=tuple(notes),
        gap="; ".join(gaps) or None,
    )


def _working(sides: _Sides, benchmarks: Sequence[BorrowedBenchmark], notes: list[str]) -> Iterator[str]:
    """Yield the names of new benchmarks that work on head, so that they work when they are compared."""
    for benchmark, answer in zip(benchmarks, sides.ask(BorrowedTask.EXAMINE, benchmarks, sides.head), strict=True):
        if answer.examined is not None:
            yield benchmark.name
        elif benchmark.is_named and not answer.is_skipped:
            raise GateError(f"head: {benchmark.name}: {answer.reason}")
        else:
            notes.append(f"{benchmark.name}: left out: {answer.reason}")


def _calibrated(pairs: Sequence[_Pair], sides: _Sides) -> Iterator[BorrowedBenchmark]:
    answers = sides.ask(BorrowedTask.CALIBRATE, [pair.benchmark for pair in pairs], sides.base)
    for pair, answer in zip(pairs, answers, strict=True):
        if answer.number is None:
            raise GateError(f"base: {pair.benchmark.name}: {answer.reason}")
        yield pair.benchmark.model_copy(update={"number": answer.number, "is_torch": pair.base.is_torch})


def count_name(benchmark: str) -> str:
    """Return the name under which a benchmark's counters are judged."""
    return f"counts {benchmark}"


def counter_changes(benchmark: str, old: Examined, new: Examined) -> list[CounterChange]:
    """Return the counters of one call that differ. More is worse. Memory may grow by 5 % or 1 KiB. Pure."""
    found = list[CounterChange]()
    for change in diff(old.counters, new.counters):
        before, after = change.old or 0, change.new or 0
        if change.name != _PEAK or abs(after - before) > max(TOLERATED * before, _NOTABLE_BYTES):
            found.append(
                CounterChange(
                    benchmark=count_name(benchmark),
                    counter=change.name,
                    base=change.old,
                    head=change.new,
                    is_worse=after > before,
                )
            )
    return found


def _confirmed(
    pairs: Sequence[_Pair], sides: _Sides, notes: list[str]
) -> tuple[list[CounterChange], tuple[Blame, ...]]:
    """Count benchmarks whose counters differ once more, with details. Return what is the same again, and its code."""
    first = {pair.benchmark.name: counter_changes(pair.benchmark.name, pair.base, pair.head) for pair in pairs}
    again = [pair.benchmark for pair in pairs if first[pair.benchmark.name]]
    confirmed, blames = list[CounterChange](), list[Blame]()
    for pair in sides.examine(again, notes, details=True):
        name = pair.benchmark.name
        second = counter_changes(name, pair.base, pair.head)
        for change in first[name]:
            if change not in second:
                notes.append(f"{name}: {change.counter} is not the same in each process, so it is left out")
                continue
            confirmed.append(change)
            if change.is_worse and (blame := blame_of(change, pair.base, pair.head)).causes:
                blames.append(blame)
    return confirmed, tuple(blames)


def _value_changes(
    benchmarks: Sequence[BorrowedBenchmark], sides: _Sides, gaps: list[str], notes: list[str]
) -> Iterator[CounterChange]:
    """Yield the values that differ. Add to `gaps` which values of base differ by themselves."""
    rounds = [sides.examine(benchmarks, notes) for _ in range(_VALUES)]
    for pairs in zip(*rounds, strict=True):
        olds, news = [pair.base for pair in pairs], [pair.head for pair in pairs]
        found = value_change(pairs[0].benchmark, olds, news)
        if isinstance(found, CounterChange):
            yield found
        elif found is not None:
            gaps.append(found)


def value_change(
    benchmark: BorrowedBenchmark, olds: Sequence[Examined], news: Sequence[Examined]
) -> CounterChange | str | None:
    """Return the change of a value, None if there is none, or the reason why it cannot be compared. Pure.

    Less is better, as for asv. A growth up to the threshold is no change.
    """
    before, after = ([each.value for each in side if each.value is not None] for side in (olds, news))
    if len(before) < len(olds) or len(after) < len(news):
        return f"{benchmark.name}: {'base' if len(before) < len(olds) else 'head'} has no value"
    tolerated = benchmark.threshold * abs(median(before))
    if max(before) - min(before) > tolerated:
        return f"{benchmark.name}: base's own values differ: {min(before):g} to {max(before):g}"
    growth = median(after) - median(before)
    if abs(growth) <= tolerated:
        return None
    return CounterChange(
        benchmark=benchmark.name,
        counter=f"value ({olds[0].unit})",
        base=median(before),
        head=median(after),
        is_worse=growth > 0,
    )
