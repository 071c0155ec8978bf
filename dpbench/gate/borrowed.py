"""Benchmarks of asv and pytest that a project has already: which are meant, whether they work, and their counters.

    selection    asv = "time_step.Step.time_forward"    asv's names and pytest's node ids, as their owners type them
    listing      what base has, and what head has        pure from here
    benchmark    both have it: compared; only head has it: new

Each is examined once on each side. Counters that differ are counted once more, with their lines of code, and only those
that are equal again are reported. Values are taken three times on each side.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from posixpath import normpath
from statistics import median

from dpbench.cases.explain import nearest
from dpbench.errors import GateError
from dpbench.gate.judgement import Blame, CounterChange
from dpbench.gate.settings import Selection, Timeable
from dpbench.gate.tier0 import TOLERATED, blame_of
from dpbench.processes.borrow import ask_borrowed
from dpbench.processes.launch import Launcher
from dpbench.processes.messages import BorrowedAnswer, BorrowedRequest, BorrowedTask, Side
from dpbench.records.borrowed import Examined, Kind, Listed, Listing, Suite
from dpbench.records.counts import diff

_VALUES = 3
_NOTABLE_BYTES = 1024
_PEAK = "call.python_peak_bytes"


class BorrowedBenchmark(Timeable):
    """A benchmark that both commits have. `number` is the calls of a sample, calibrated on base, for all sides."""

    suite: Suite
    kind: Kind = Kind.TIME
    number: int = 1
    is_torch: bool = False

    def series(self, cores: int, default_lanes: tuple[str, ...]) -> str:  # noqa: ARG002
        return f"{self.suite} {self.name}"


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


@dataclass
class _Chosen:
    both: dict[str, BorrowedBenchmark] = field(default_factory=dict)
    new: dict[str, BorrowedBenchmark] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def borrow(
    selections: Sequence[Selection],
    base: Side,
    head: Side,
    launch: Launcher,
    *,
    with_counters: bool,
    progress: Callable[[str], object] = lambda _: None,
) -> Borrowed:
    """Look the selections up on both sides, and examine what they name. Raises GateError if a benchmark fails."""
    ask = partial(ask_borrowed, launch=launch)
    progress("listing the benchmarks of base and of head")
    chosen = _look_up(selections, base, head, ask)
    progress(f"examining {len(chosen.both) + len(chosen.new)} benchmarks")
    _examined(list(chosen.new.values()), "head", head, ask)
    timed = [each for each in chosen.both.values() if each.kind is Kind.TIME]
    valued = [each for each in chosen.both.values() if each.kind is Kind.VALUE]

    def both(benchmarks: Sequence[BorrowedBenchmark], *, details: bool = True) -> tuple[list[Examined], list[Examined]]:
        return (
            _examined(benchmarks, "base", base, ask, details=details),
            _examined(benchmarks, "head", head, ask, details=details),
        )

    olds, news = both(timed, details=False)
    changes, blames, unequal = _confirmed(timed, olds, news, both) if with_counters else ([], (), [])
    values, gaps, no_values = _compare_values(valued, base, head, ask)
    return Borrowed(
        timed=tuple(_calibrated(timed, olds, base, ask)),
        changes=(*changes, *values),
        blames=blames,
        counted=len(valued) + (len(timed) if with_counters else 0),
        new=tuple(chosen.new),
        notes=(*chosen.notes, *unequal, *no_values),
        gap="; ".join(gaps) or None,
    )


_Ask = Callable[[Sequence[BorrowedRequest]], tuple[BorrowedAnswer, ...]]


def _look_up(selections: Sequence[Selection], base: Side, head: Side, ask: _Ask) -> _Chosen:
    wanted = list(dict.fromkeys((selection.suite, place_of(selection)) for selection in selections))
    answers = ask(
        [
            BorrowedRequest(task=BorrowedTask.LIST, suite=suite, side=side, name=place)
            for side in (base, head)
            for suite, place in wanted
        ]
    )
    olds, news = (dict(zip(wanted, part, strict=True)) for part in (answers[: len(wanted)], answers[len(wanted) :]))
    chosen = _Chosen()
    for selection in selections:
        key = selection.suite, place_of(selection)
        old, new = olds[key], news[key]
        if new.listing is None:
            raise GateError(f"head: {selection.suite}: {new.reason}")
        if old.listing is None:
            chosen.notes.append(f"base: {selection.suite}: {old.reason}")
        choose(selection, old.listing or Listing(), new.listing, chosen)
    if not chosen.both and not chosen.new:
        raise GateError(
            f"benchmark: none can be compared: {chosen.notes[0]}; allowed: a benchmark that a gate can time"
        )
    return chosen


def place_of(selection: Selection) -> str:
    """Return what pytest collects for a selection: a file or folder, or with a pattern also a node id."""
    if selection.suite is Suite.ASV:
        return ""
    file, colons, rest = selection.text.partition("::")
    return normpath(file) + (colons + rest if selection.is_pattern else "")


def choose(selection: Selection, old: Listing, new: Listing, chosen: _Chosen) -> None:
    """Add to `chosen` what a selection means. Raises GateError if head lacks it, or if it cannot be borrowed. Pure."""
    olds = {each.name: each for each in old.benchmarks if is_meant(selection, each)}
    news = {each.name: each for each in new.benchmarks if is_meant(selection, each)}
    if not news:
        why = "head has no such benchmark" if not olds else "only base has it"
        problems = f"; {len(new.problems)} did not import: {new.problems[0]}" if new.problems else ""
        names = [name for each in new.benchmarks for name in (each.name, bare(selection.suite, each.name))]
        hint = nearest(selection.text, names)
        allowed = "; allowed: a benchmark that head has"
        raise GateError(f"benchmark: {selection.suite}: {selection.text!r}: {why}{hint}{problems}{allowed}")
    chosen.notes += [f"{name}: only base has it" for name in olds if name not in news]
    for name, listed in news.items():
        if listed.refused is not None:
            if not selection.is_pattern:
                raise GateError(f"benchmark: {selection.suite}: {name!r}: {listed.refused}")
            chosen.notes.append(f"{name}: left out: {listed.refused}")
        elif name in olds:
            chosen.both[name] = _benchmark(selection, listed)
            if olds[name].version != listed.version:
                chosen.notes.append(f"{name}: base and head have different code of the benchmark itself")
        else:
            chosen.new[name] = _benchmark(selection, listed)
            chosen.notes.append(f"{name}: new: nothing to hold it against, because base does not have it")


def is_meant(selection: Selection, listed: Listed) -> bool:
    """Whether a selection means this benchmark: by a pattern as asv's ``--bench``, or by its name."""
    if selection.is_pattern:
        return selection.suite is Suite.PYTEST or re.search(selection.text, listed.name) is not None
    return selection.text in (listed.name, bare(selection.suite, listed.name))


def bare(suite: Suite, name: str) -> str:
    """Return a benchmark's name without its parameters."""
    return name.partition("(" if suite is Suite.ASV else "[")[0]


def _benchmark(selection: Selection, listed: Listed) -> BorrowedBenchmark:
    return BorrowedBenchmark(
        name=listed.name,
        suite=selection.suite,
        kind=listed.kind,
        cores=selection.cores,
        threshold=selection.threshold,
    )


def _request(task: BorrowedTask, benchmark: BorrowedBenchmark, side: Side, *, details: bool = False) -> BorrowedRequest:
    return BorrowedRequest(
        task=task, suite=benchmark.suite, side=side, name=benchmark.name, kind=benchmark.kind, details=details
    )


def _examined(
    benchmarks: Sequence[BorrowedBenchmark], side_name: str, side: Side, ask: _Ask, *, details: bool = False
) -> list[Examined]:
    """Return what one call of each does on this side. Raises GateError if one fails."""
    answers = ask([_request(BorrowedTask.EXAMINE, each, side, details=details) for each in benchmarks])
    found = list[Examined]()
    for benchmark, answer in zip(benchmarks, answers, strict=True):
        if answer.examined is None:
            raise GateError(f"{side_name}: {benchmark.name}: {answer.reason}")
        found.append(answer.examined)
    return found


def _calibrated(
    benchmarks: Sequence[BorrowedBenchmark], olds: Sequence[Examined], base: Side, ask: _Ask
) -> Iterator[BorrowedBenchmark]:
    answers = ask([_request(BorrowedTask.CALIBRATE, each, base) for each in benchmarks])
    for benchmark, old, answer in zip(benchmarks, olds, answers, strict=True):
        if answer.number is None:
            raise GateError(f"base: {benchmark.name}: {answer.reason}")
        yield benchmark.model_copy(update={"number": answer.number, "is_torch": old.is_torch})


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
    timed: Sequence[BorrowedBenchmark],
    olds: Sequence[Examined],
    news: Sequence[Examined],
    ask: Callable[[Sequence[BorrowedBenchmark]], tuple[list[Examined], list[Examined]]],
) -> tuple[list[CounterChange], tuple[Blame, ...], list[str]]:
    """Count benchmarks whose counters differ once more, with details. Return what is equal again, blames, and notes."""
    first = {
        each.name: changes
        for each, old, new in zip(timed, olds, news, strict=True)
        if (changes := counter_changes(each.name, old, new))
    }
    again = [each for each in timed if each.name in first]
    confirmed, blames, notes = list[CounterChange](), list[Blame](), list[str]()
    for benchmark, old, new in zip(again, *ask(again), strict=True):
        second = counter_changes(benchmark.name, old, new)
        for change in first[benchmark.name]:
            if change not in second:
                notes.append(f"{benchmark.name}: {change.counter} is not the same in each process, so it is left out")
                continue
            confirmed.append(change)
            if change.is_worse and (blame := blame_of(change, old, new)).causes:
                blames.append(blame)
    return confirmed, tuple(blames), notes


def _compare_values(
    valued: Sequence[BorrowedBenchmark], base: Side, head: Side, ask: _Ask
) -> tuple[list[CounterChange], list[str], list[str]]:
    """Return the values that differ, which of base's differ by themselves, and notes on benchmarks without a value."""
    rounds = [
        [_examined(valued, name, side, ask) for _ in range(_VALUES)] for name, side in (("base", base), ("head", head))
    ]
    changes, gaps, notes = list[CounterChange](), list[str](), list[str]()
    for i, benchmark in enumerate(valued):
        olds, news = ([found[i] for found in side] for side in rounds)
        found = value_change(benchmark, olds, news)
        if isinstance(found, CounterChange):
            changes.append(found)
        elif found is not None:
            (gaps if "differ" in found else notes).append(found)
    return changes, gaps, notes


def value_change(
    benchmark: BorrowedBenchmark, olds: Sequence[Examined], news: Sequence[Examined]
) -> CounterChange | str | None:
    """Return the change of a value, None if there is none, or the reason why it cannot be compared. Pure.

    Less is better, as for asv. A growth up to the threshold is no change.
    """
    before, after = ([each.value for each in side if each.value is not None] for side in (olds, news))
    if len(before) < len(olds) or len(after) < len(news):
        return f"{benchmark.name}: not compared: {'head' if before else 'base'} has no value"
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
