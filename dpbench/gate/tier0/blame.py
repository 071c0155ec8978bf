"""Which code made a counter worse: the details of base and head, compared. Pure but for `find_blames`.

    counter   forward.operators   1,204 -> 1,205
    cause     aten.clone.default   0 -> 1   in DataParallel.forward at dpbench/parallel/module.py:170

Details are matched by what was done and in which function of which file. Line numbers do not count: a line added
above would change them all. They are shown, and the lines of text tell which of a function's lines are new.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dpbench.gate.judgement import Blame, Cause, CounterChange
from dpbench.gate.tier0.growth import GROWTH, doublings, growth_name
from dpbench.results.counts import CountRecord
from dpbench.results.details import Detail
from dpbench.run.count_all import CountingError, run_jobs
from dpbench.run.launch import Launcher
from dpbench.run.messages import CountJob
from dpbench.sweep.case import Case

MOST_CAUSES = 5
"""The causes that are named of one counter."""
_MOST_LINES = 3
_DETAILED = re.compile(r"\w+\.(python_calls|python_lines|operators|kernels|flops|copies\..*|host_calls\..*)")
"""The counters that have details. Memory, allocations and dependencies are known as a whole only."""

_Key = tuple[str, str, str, str]


def find_blames(
    changes: Sequence[CounterChange], jobs: Mapping[str, CountJob], base: Path, head: Path, launch: Launcher
) -> tuple[Blame, ...]:
    """Count the cases of worse counters once more, with details, and return a blame for each counter that has some.

    `jobs` are by the names of their benchmarks. Without a worse counter nothing is counted. If a side cannot be counted
    again, there is no blame.
    """
    worse = [each for each in changes if each.is_worse and each.benchmark in jobs and has_details(each.counter)]
    names = dict.fromkeys(each.benchmark for each in worse)
    wanted = {name: jobs[name].model_copy(update={"details": True, "kept_steps": 0}) for name in names}
    if not wanted:
        return ()
    try:
        olds = run_jobs(list(wanted.values()), folder=base, launch=launch)
        news = run_jobs(list(wanted.values()), folder=head, launch=launch)
    except CountingError:
        return ()
    sides = dict(zip(wanted, zip(olds, news, strict=True), strict=True))
    blames = (blame_of(change, *sides[change.benchmark]) for change in worse)
    return tuple(blame for blame in blames if blame.causes)


def has_details(counter: str) -> bool:
    """Whether lines of code are known for this counter."""
    return _DETAILED.fullmatch(counter.removesuffix(GROWTH)) is not None


def blame_of(change: CounterChange, old: CountRecord, new: CountRecord) -> Blame:
    """Return the code behind one worse counter. Pure."""
    found = causes(change.counter.removesuffix(GROWTH), old.details, new.details)
    shown = found[:MOST_CAUSES]
    return Blame(benchmark=change.benchmark, counter=change.counter, causes=tuple(shown), more=len(found) - len(shown))


def causes(counter: str, olds: Iterable[Detail], news: Iterable[Detail]) -> list[Cause]:
    """Return the code whose part of the counter differs: what grew, the most first, then what shrank."""
    before, after = _by_key(counter, olds), _by_key(counter, news)
    found = [_cause(before.get(key, []), after.get(key, [])) for key in before.keys() | after.keys()]
    changed = [cause for cause in found if cause.base != cause.head]
    return sorted(changed, key=lambda c: (c.base - c.head, c.file, c.lines, c.what))


def jobs_by_benchmark(jobs: Mapping[str, CountJob]) -> dict[str, CountJob]:
    """Return these jobs, and those of growths: their larger cases."""
    by_case: dict[Case, CountJob] = {job.case: job for job in jobs.values()}
    growths = {growth_name(each): by_case[each.large] for each in doublings() if each.large in by_case}
    return {**jobs, **growths}


def _by_key(counter: str, details: Iterable[Detail]) -> dict[_Key, list[Detail]]:
    found: dict[_Key, list[Detail]] = defaultdict(list)
    for each in details:
        if each.counter == counter:
            key = (each.what, each.defined.file if each.defined else "", each.place.file, each.place.function)
            found[key].append(each)
    return found


def _cause(olds: Sequence[Detail], news: Sequence[Detail]) -> Cause:
    """Return the cause of two groups of details that match. One group may be empty."""
    old, new = sum(each.value for each in olds), sum(each.value for each in news)
    shown = _changed_lines(olds, news) if new > old else _changed_lines(news, olds)
    first = shown[0]
    what = first.what if first.defined is None else f"{first.what} ({first.defined.file}:{first.defined.line})"
    return Cause(
        what=what,
        function=first.place.function,
        file=first.place.file,
        lines=tuple(sorted(each.place.line for each in shown)[:_MOST_LINES]),
        text=first.place.text,
        base=old,
        head=new,
    )


def _changed_lines(fewer: Sequence[Detail], more: Sequence[Detail]) -> Sequence[Detail]:
    """Return the details of `more` whose lines have a greater part than in `fewer`; all if no line has, by line."""
    before, after = _by_text(fewer), _by_text(more)
    grown = [each for each in more if after[each.place.text] > before[each.place.text]]
    return sorted(grown or more, key=lambda each: each.place.line)


def _by_text(details: Iterable[Detail]) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in details:
        found[each.place.text] += each.value
    return found
