"""The counters that changed, by the line of code behind them.

in Tagger.forward at net.py:17: 4 counters worse in 2 cases: forward.kernels 12 -> 16, forward.operators 36 -> 40
10 other counters worse in 4 cases: forward.allocations 17 -> 21 in 2 cases, ...
3 counters better in my_step, on 2 CPU lanes: backward.host_operators 40 -> 38, ...
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from dpbench.gate.judgement import Blame, Cause, CounterChange, Judgement, State
from dpbench.gate.words import STATES, change_of
from dpbench.text.outside import one_line
from dpbench.text.quantities import plural

_MOST_COUNTERS = 3
_MOST_CASES = 2
_MOST_CODE = 1
_LONGEST_TEXT = 60
_RANKS = {State.WORSE: 0, State.NOTED: 2, State.TOLERATED: 2, State.ACCEPTED: 3, State.DIFFERENT: 4, State.BETTER: 5}
"""The order of the groups. Worse counters whose place is unknown rank one lower."""
_BADNESS = {
    State.WORSE: 2,
    State.DIFFERENT: 1,
    State.NOTED: 1,
    State.TOLERATED: 1,
    State.BETTER: 0,
    State.ACCEPTED: -1,
}


@dataclass(frozen=True)
class CounterGroup:
    """Counters that changed at one place or in one direction: one line, and lines with the code and the cases."""

    is_worse: bool
    line: str
    details: tuple[str, ...]


def counter_groups(judgement: Judgement) -> list[CounterGroup]:
    """Worse ones by their place in the code, worse ones without a place, then all others.

    A counter is in the group of each place that made it grow.
    """
    causes = {(blame.benchmark, blame.counter): blame.causes for blame in judgement.blames}
    groups: dict[tuple[int, str, str], dict[CounterChange, None]] = defaultdict(dict)
    code: dict[str, dict[str, None]] = defaultdict(dict)
    for change in worst_first(judgement.counters):
        rank, state = _RANKS[change.state], STATES[change.state][1].format(traded_for=change.traded_for)
        behind = causes.get((change.benchmark, change.counter), ()) if change.state is State.WORSE else ()
        places = {_place(cause): f"{cause.what}: {_text(cause)}" for cause in behind}
        for place, text in (places or {"": ""}).items():
            groups[rank if place else rank + 1, place, state][change] = None
            code[place][text] = None
    ordered = sorted(groups.items(), key=lambda group: group[0][0])
    has_places = any(place for _, place, _ in groups)
    return [_group(place, state, list(group), list(code[place]), has_places) for (_, place, state), group in ordered]


def _group(
    place: str, state: str, changes: Sequence[CounterChange], code: Sequence[str], has_places: bool
) -> CounterGroup:
    is_worse = changes[0].state is State.WORSE
    cases = list(dict.fromkeys(change.benchmark for change in changes))
    by_name: dict[str, list[CounterChange]] = defaultdict(list)
    for change in changes:
        by_name[change.counter].append(change)
    numbers = [_numbers(same, len(cases)) for same in by_name.values()]
    other = "other " if is_worse and has_places and not place else ""
    number = plural(len(changes), f"{other}counter")
    where = cases[0] if len(cases) == 1 else f"{len(cases):,} cases"
    line = f"{place}{number} {state} in {where}: {_first(numbers, _MOST_COUNTERS, ', ')}"
    details = list(code[:_MOST_CODE]) if place else []
    if len(cases) > 1:
        details.append(f"cases: {_first(cases, _MOST_CASES, '; ')}")
    return CounterGroup(is_worse, one_line(line), tuple(map(one_line, details)))


def _first(texts: Sequence[str], most: int, between: str) -> str:
    more = f"{between}and {len(texts) - most:,} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


def _numbers(changes: Sequence[CounterChange], cases: int) -> str:
    """``forward.operators 120 -> 126 in 4 cases``, with the numbers of the worst case."""
    where = "" if len(changes) == cases else f" in {plural(len(changes), 'case')}"
    return f"{change_of(changes[0])}{where}"


def _place(cause: Cause) -> str:
    return f"in {cause.function} at {cause.file}:{', '.join(map(str, cause.lines))}: "


def _text(cause: Cause) -> str:
    return cause.text if len(cause.text) <= _LONGEST_TEXT else f"{cause.text[:_LONGEST_TEXT]} ..."


def cause_lines(blame: Blame) -> Iterator[str]:
    for cause in blame.causes:
        numbers = f"{cause.head - cause.base:+,} ({cause.base:,} -> {cause.head:,})"
        yield one_line(f"{numbers} {cause.what}, {_place(cause)}{_text(cause)}")
    if blame.more:
        yield f"... and {blame.more:,} more"


def worst_first(changes: Iterable[CounterChange]) -> list[CounterChange]:
    """The worst of each benchmark, then the second worst of each."""
    by_benchmark: dict[str, list[CounterChange]] = defaultdict(list)
    for change in sorted(changes, key=_badness, reverse=True):
        by_benchmark[change.benchmark].append(change)
    ranked = [(rank, change) for group in by_benchmark.values() for rank, change in enumerate(group)]

    def place(row: tuple[int, CounterChange]) -> tuple[int, int, float]:
        badness, growth = _badness(row[1])
        return -badness, row[0], -growth

    return [change for _, change in sorted(ranked, key=place)]


def _badness(change: CounterChange) -> tuple[int, float]:
    """How bad the change is, and its growth as a share."""
    is_new_or_gone = change.base is None or change.head is None
    return _BADNESS.get(change.state, 1), inf if is_new_or_gone else abs(change.more) / max(abs(change.base or 0), 1)
