"""The code behind a worse counter, by counting once more with details. Pure but for counting and reading the commits.

    counter   forward.operators   1,204 -> 1,205
    cause     aten.clone.default   0 -> 1   in DataParallel.forward at dpbench/parallel/module.py:170

Details are matched by what was done and in which function of which file. Line numbers do not count: a line added above
would change them all. The causes of a counter are, in this order:

1. lines that the commit changed, and that the counter's events pass through
2. if they explain less than half of it: such lines of other counters, or else all lines that the commit changed
3. other lines of functions that the commit changed
4. without any of these: other code of the project, then of libraries
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from dpbench.engine.interpret import ChildError
from dpbench.engine.messages import CountJob
from dpbench.gate.changed_code import ChangedCode, changed_code, is_library
from dpbench.gate.counters import GROWTH
from dpbench.gate.judgement import Blame, Cause, CounterChange
from dpbench.gate.sides import Sides
from dpbench.jobs.count import run_jobs
from dpbench.records.count_record import CountRecord, Detail

MOST_CAUSES = 3
_MOST_LINES = 3
_UNKNOWN = ChangedCode()

_Key = tuple[str, str, str, str]
Details = Mapping[str, tuple[Iterable[Detail], Iterable[Detail]]]
"""Base's and head's, by benchmark."""


def find_blames(changes: Iterable[CounterChange], jobs: Mapping[str, CountJob], sides: Sides) -> tuple[Blame, ...]:
    """Count the cases of worse counters once more, with details; return a blame for each counter that has some.

    `jobs` are by the names of their benchmarks. If a side cannot be counted again, the changed code is blamed.
    """
    worse = [change for change in changes if change.is_worse and change.benchmark in jobs]
    if not worse:
        return ()
    code = changed_code(sides.base, sides.head)
    names = dict.fromkeys(change.benchmark for change in worse)
    detailed_jobs = [
        _detailed(jobs[name], [change.counter for change in worse if change.benchmark == name]).model_copy(
            update={"folder": str(folder), "changed": lines}
        )
        for name in names
        for folder, lines in ((sides.base, code.base), (sides.head, code.head))
    ]
    records: Sequence[CountRecord]
    try:
        records = run_jobs(detailed_jobs, launch=sides.launch)
    except ChildError:
        records = ()
    pairs = zip(records[::2], records[1::2], strict=True)
    details = {name: (base.details, head.details) for name, (base, head) in zip(names, pairs, strict=False)}
    code = code.of({file for record in records for file in record.imported})
    return blames_of(worse, details, code, lambda file: is_library(file, sides.base, sides.head))


def _detailed(job: CountJob, counters: Sequence[str]) -> CountJob:
    """Without what no worse counter needs."""
    steps = job.more_steps if any(name.startswith("more_steps.") for name in counters) else 0
    return job.model_copy(update={"details": True, "routes": False, "more_steps": steps})


def blames_of(
    worse: Sequence[CounterChange],
    details: Details,
    code: ChangedCode = _UNKNOWN,
    is_of_library: Callable[[str], bool] = lambda _: False,
) -> tuple[Blame, ...]:
    """Pure."""
    grown = [
        [
            cause
            for cause in causes(change.counter.removesuffix(GROWTH), *details.get(change.benchmark, ((), ())), code)
            if cause.head > cause.base
        ]
        for change in worse
    ]
    proven = list(
        dict.fromkeys(cause.unproven() for named in grown for cause in named if code.has(cause.file, cause.lines))
    )
    blames = []
    for change, named in zip(worse, grown, strict=True):
        chosen = [cause for cause in named if code.has(cause.file, cause.lines)]
        if 2 * sum(map(_growth, chosen)) <= sum(map(_growth, named)):
            at = {(cause.file, cause.lines) for cause in chosen}
            chosen += [cause for cause in proven or code.places if (cause.file, cause.lines) not in at]
        chosen += [cause for cause in named if cause.is_changed and not code.has(cause.file, cause.lines)]
        if chosen := chosen or sorted(named, key=lambda cause: is_of_library(cause.file)):
            shown, more = tuple(chosen[:MOST_CAUSES]), len(chosen[MOST_CAUSES:])
            blames.append(Blame(benchmark=change.benchmark, counter=change.counter, causes=shown, more=more))
    return tuple(blames)


def _growth(cause: Cause) -> int:
    return cause.head - cause.base


def causes(counter: str, olds: Iterable[Detail], news: Iterable[Detail], code: ChangedCode = _UNKNOWN) -> list[Cause]:
    """What grew, the most first, then what shrank."""
    before, after = _by_key(counter, olds), _by_key(counter, news)
    matched = [_cause(before.get(key, []), after.get(key, []), code) for key in before.keys() | after.keys()]
    changed = [cause for cause in matched if cause.base != cause.head]
    return sorted(changed, key=lambda c: (c.base - c.head, c.file, c.lines, c.what))


def _by_key(counter: str, details: Iterable[Detail]) -> dict[_Key, list[Detail]]:
    by_key: dict[_Key, list[Detail]] = defaultdict(list)
    for detail in details:
        if detail.counter == counter:
            defined_in = detail.defined.file if detail.defined else ""
            by_key[detail.what, defined_in, detail.place.file, detail.place.function].append(detail)
    return by_key


def _cause(olds: Sequence[Detail], news: Sequence[Detail], code: ChangedCode) -> Cause:
    """The cause of two groups of details that match. One may be empty."""
    old, new = sum(detail.value for detail in olds), sum(detail.value for detail in news)
    shown = _changed_lines(olds, news) if new > old else _changed_lines(news, olds)
    shown = [detail for detail in shown if code.has(detail.place.file, [detail.place.line])] or shown
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
        is_changed=first.is_changed,
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
