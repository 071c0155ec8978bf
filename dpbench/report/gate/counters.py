"""The counters that changed, by the line of code behind them.

in Tagger.forward at net.py:17: 4 counters worse in 2 cases: forward.kernels 12 -> 16, forward.operators 36 -> 40
10 other counters worse in 4 cases: forward.allocations 17 -> 21 in 2 cases, ...
3 counters better in my_step, on 2 CPU lanes: backward.host_operators 40 -> 38, ...
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from dpbench.gate.judgement import Blame, Cause, CounterChange, Judgement
from dpbench.text.outside import one_line

_MOST_COUNTERS, _MOST_CASES, _MOST_CODE = 4, 4, 3
_LONGEST_TEXT = 60


@dataclass(frozen=True)
class CounterGroup:
    """Counters that changed at one place or in one direction: one line, and lines with the code and the cases."""

    is_worse: bool
    line: str
    details: tuple[str, ...]


def counter_groups(judgement: Judgement) -> list[CounterGroup]:
    """Return the groups: worse ones by their place in the code, worse ones without a place, then all others.

    A counter is in the group of each place that made it grow.
    """
    causes = {(blame.benchmark, blame.counter): blame.causes for blame in judgement.blames}
    groups: dict[tuple[int, str, str], dict[CounterChange, None]] = defaultdict(dict)
    code: dict[str, dict[str, None]] = defaultdict(dict)
    for change in worst_first(judgement.counters):
        rank, state = _state(change)
        found = causes.get((change.benchmark, change.counter), ()) if state == "worse" else ()
        places = {_place(cause): f"{cause.what}: {_text(cause)}" for cause in found if cause.head > cause.base}
        for place, text in (places or {"": ""}).items():
            groups[rank if place else rank + 1, place, state][change] = None
            code[place][text] = None
    ordered = sorted(groups.items(), key=lambda group: group[0][0])
    has_places = any(place for _, place, _ in groups)
    return [_group(place, state, list(found), list(code[place]), has_places) for (_, place, state), found in ordered]


def _state(change: CounterChange) -> tuple[int, str]:
    """Return the rank and the name of a group. A worse counter whose place is unknown ranks one lower."""
    if change.accepted is not None:
        return 4, "accepted"
    if change.traded_for is not None:
        return 3, f"traded for the time of {change.traded_for}"
    if change.tolerated:
        return 3, "more, which is tolerated,"
    return {True: (0, "worse"), None: (5, "different"), False: (6, "better")}[change.is_worse]


def _group(
    place: str, state: str, changes: Sequence[CounterChange], code: Sequence[str], has_places: bool
) -> CounterGroup:
    cases = list(dict.fromkeys(change.benchmark for change in changes))
    by_name: dict[str, list[CounterChange]] = defaultdict(list)
    for change in changes:
        by_name[change.counter].append(change)
    names = [_numbers(found, len(cases)) for found in by_name.values()]
    other = "other " if state == "worse" and has_places and not place else ""
    number = f"{len(changes):,} {other}counter{'' if len(changes) == 1 else 's'}"
    where = cases[0] if len(cases) == 1 else f"{len(cases):,} cases"
    line = f"{place}{number} {state} in {where}: {_first(names, _MOST_COUNTERS, ', ')}"
    shown = code[:_MOST_CODE] if place else []
    if len(cases) > 1:
        shown = [*shown, f"cases: {_first(cases, _MOST_CASES, '; ')}"]
    return CounterGroup(state == "worse", one_line(line), tuple(map(one_line, shown)))


def _first(texts: Sequence[str], most: int, between: str) -> str:
    more = f"{between}and {len(texts) - most:,} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


def _numbers(changes: Sequence[CounterChange], cases: int) -> str:
    """``forward.operators 120 -> 126 in 4 cases``, with the numbers of the worst case."""
    where = "" if len(changes) == cases else f" in {len(changes):,} case{'' if len(changes) == 1 else 's'}"
    return f"{changes[0].counter} {count(changes[0].base)} -> {count(changes[0].head)}{where}"


def _place(cause: Cause) -> str:
    return f"in {cause.function} at {cause.file}:{', '.join(map(str, cause.lines))}: "


def _text(cause: Cause) -> str:
    return cause.text if len(cause.text) <= _LONGEST_TEXT else f"{cause.text[:_LONGEST_TEXT]} ..."


def cause_lines(blame: Blame) -> Iterator[str]:
    """Yield a line for each cause of one worse counter, and one for those that are left out."""
    for cause in blame.causes:
        numbers = f"{cause.head - cause.base:+,} ({cause.base:,} -> {cause.head:,})"
        yield one_line(f"{numbers} {cause.what}, {_place(cause)}{_text(cause)}")
    if blame.more:
        yield f"... and {blame.more:,} more"


def worst_first(changes: Iterable[CounterChange]) -> list[CounterChange]:
    """Sort worse counters first: the worst of each benchmark, then the second worst of each."""
    by_benchmark: dict[str, list[CounterChange]] = defaultdict(list)
    for change in sorted(changes, key=_badness, reverse=True):
        by_benchmark[change.benchmark].append(change)
    ranked = [(*_badness(change), rank, change) for found in by_benchmark.values() for rank, change in enumerate(found)]
    return [change for *_, change in sorted(ranked, key=lambda found: (-found[0], found[2], -found[1]))]


def _badness(change: CounterChange) -> tuple[int, float]:
    kind = {True: 2, None: 1, False: 0}[change.is_worse] if change.accepted is None else -1
    kind = min(kind, 1) if change.traded_for or change.tolerated else kind
    if change.base is None or change.head is None:
        return kind, inf
    return kind, abs(change.head - change.base) / max(abs(change.base), 1)


def count(value: float | None) -> str:
    """Return the count with commas, or ``none``."""
    return "none" if value is None else f"{value:,}"
