"""The code behind a worse counter, by counting once more with details. Pure but for counting.

    counter   forward.operators   1,204 -> 1,205
    cause     aten.clone.default   0 -> 1   in DataParallel.forward at dpbench/parallel/module.py:170

Details are matched by what was done and in which function of which file. Line numbers do not count: a line added above
would change them all.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from dpbench.engine.interpret import ChildError
from dpbench.engine.messages import CountJob
from dpbench.gate.counters import GROWTH, kind_of
from dpbench.gate.judgement import Blame, Cause, CounterChange
from dpbench.gate.sides import Sides
from dpbench.jobs.count import run_jobs
from dpbench.records.count_record import Detail

MOST_CAUSES = 5
_MOST_LINES = 3

_Key = tuple[str, str, str, str]


def find_blames(changes: Iterable[CounterChange], jobs: Mapping[str, CountJob], sides: Sides) -> tuple[Blame, ...]:
    """Count the cases of worse counters once more, with details; return a blame for each counter that has some.

    `jobs` are by the names of their benchmarks. If a side cannot be counted again, there is no blame.
    """
    worse = [
        change
        for change in changes
        if change.is_worse and change.benchmark in jobs and kind_of(change.counter).has_details
    ]
    names = dict.fromkeys(change.benchmark for change in worse)
    detailed = {"details": True, "more_steps": 0, "uses": False, "routes": False}
    wanted = [
        jobs[name].model_copy(update={**detailed, "folder": str(folder)})
        for name in names
        for folder in (sides.base, sides.head)
    ]
    if not wanted:
        return ()
    try:
        records = run_jobs(wanted, launch=sides.launch)
    except ChildError:
        return ()
    pairs = zip(records[::2], records[1::2], strict=True)
    details = {name: (base.details, head.details) for name, (base, head) in zip(names, pairs, strict=True)}
    return blames_of(worse, details)


def blames_of(
    worse: Iterable[CounterChange], details: Mapping[str, tuple[Iterable[Detail], Iterable[Detail]]]
) -> tuple[Blame, ...]:
    """`details` are base's and head's by benchmark. Pure."""
    blames = []
    for change in worse:
        if named := causes(change.counter.removesuffix(GROWTH), *details[change.benchmark]):
            shown, more = tuple(named[:MOST_CAUSES]), len(named[MOST_CAUSES:])
            blames.append(Blame(benchmark=change.benchmark, counter=change.counter, causes=shown, more=more))
    return tuple(blames)


def causes(counter: str, olds: Iterable[Detail], news: Iterable[Detail]) -> list[Cause]:
    """What grew, the most first, then what shrank."""
    before, after = _by_key(counter, olds), _by_key(counter, news)
    matched = [_cause(before.get(key, []), after.get(key, [])) for key in before.keys() | after.keys()]
    changed = [cause for cause in matched if cause.base != cause.head]
    return sorted(changed, key=lambda c: (c.base - c.head, c.file, c.lines, c.what))


def _by_key(counter: str, details: Iterable[Detail]) -> dict[_Key, list[Detail]]:
    by_key: dict[_Key, list[Detail]] = defaultdict(list)
    for detail in details:
        if detail.counter == counter:
            defined_in = detail.defined.file if detail.defined else ""
            by_key[detail.what, defined_in, detail.place.file, detail.place.function].append(detail)
    return by_key


def _cause(olds: Sequence[Detail], news: Sequence[Detail]) -> Cause:
    """The cause of two groups of details that match. One may be empty."""
    old, new = sum(detail.value for detail in olds), sum(detail.value for detail in news)
    shown = _changed_lines(olds, news) if new > old else _changed_lines(news, olds)
    first = shown[0]
    what = first.what if first.defined is None else f"{first.what} ({first.defined.file}:{first.defined.line})"
    return Cause(
        what=what,
        function=first.place.function,
        file=first.place.file,
        lines=tuple(sorted(detail.place.line for detail in shown)[:_MOST_LINES]),
        text=first.place.text,
        base=old,
        head=new,
    )


def _changed_lines(fewer: Sequence[Detail], more: Sequence[Detail]) -> Sequence[Detail]:
    """The details of `more` whose lines have a greater part than in `fewer`; all if no line has, by line."""
    before, after = _by_text(fewer), _by_text(more)
    grown = [detail for detail in more if after[detail.place.text] > before[detail.place.text]]
    return sorted(grown or more, key=lambda detail: detail.place.line)


def _by_text(details: Iterable[Detail]) -> Counter[str]:
    values: Counter[str] = Counter()
    for detail in details:
        values[detail.place.text] += detail.value
    return values
