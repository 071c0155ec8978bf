"""The words of a verdict: why a benchmark is judged so, what a finding is called, and the reason of the whole. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpbench.gate.counters import kind_of
from dpbench.gate.judgement import (
    Accepted,
    Blame,
    CounterChange,
    Drift,
    Judgement,
    Quantity,
    State,
    TimeJudgement,
)
from dpbench.judge.decision import Verdict
from dpbench.text.outside import one_line

_MOST_NAMED = 3


@dataclass(frozen=True)
class QuantityWords:
    """How a text names the quantity of the steps that grew."""

    before: str = ""
    after: str = ""
    finding: str = ""
    reason: str = ""


QUANTITIES: Mapping[Quantity, QuantityWords] = {
    "median": QuantityWords(),
    "mean": QuantityWords(
        "mean ",
        " in the mean",
        "something costs seldom",
        "; it is in the mean of all steps, so a few steps cost much more",
    ),
    "later": QuantityWords(
        "later steps ",
        " in later steps",
        "grows with the steps",
        "; it is in steps late in a process, so a cost grows with the number of steps",
    ),
}

STATES: Mapping[State, tuple[str, str]] = {
    State.WORSE: ("worse", "worse"),
    State.TOLERATED: ("more, tolerated", "more, which is tolerated,"),
    State.NOTED: ("more, noted", "more, noted because {traded_for} is not slower,"),
    State.ACCEPTED: ("accepted", "accepted"),
    State.DIFFERENT: ("differs", "different"),
    State.BETTER: ("better", "better"),
}
"""What a changed counter is called in a table, and counters are called in a line."""

OFF = "base differs from itself as much: this machine does not treat equal code alike"
SLOWER = "the growth is above the tolerated {0:.3g} %, and the interval excludes no change"
UNCLEAR = "it may be no slower, and may be slower by more than the tolerated {0:.3g} %"
LOOKS_SLOWER = "the median passes, but more rounds are needed"
FASTER = "the interval excludes no change"
PASSES = "the interval excludes more than the tolerated {0:.3g} %"
SET_UP = (
    "its set-up changed by {0:+,.0f} %, and no counter of the call is worse: caches that the set-up leaves may do this"
)
NO_ROUNDS = "the budget had room for {0} of the {1} rounds that are needed"
"""Why a benchmark of tier 1 has its verdict."""
BUDGET = "--budget {0}m would decide it, if the machine stays as it is"
NO_BUDGET = "more time is not likely to decide it"
NOT_SLOWER = "nothing is slower"
NOT_WORSE = "no time was measured, and no counter is worse"


def set_ups(times: Sequence[TimeJudgement]) -> list[str]:
    changed = [time for time in times if time.set_up is not None]
    return [f"{time.benchmark}: its set-up changed by {100 * ((time.set_up or 1) - 1):+,.0f} %" for time in changed]


def count(value: float | None) -> str:
    return "none" if value is None else f"{value:,}"


def growth(times: float) -> str:
    """``1.052`` becomes ``+5.2 %``."""
    return f"{round(100 * (times - 1), 1) + 0.0:+,.1f} %"  # + 0.0 turns -0.0 into 0.0


def first(texts: Sequence[str]) -> str:
    """At most three texts, and how many more there are."""
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return ", ".join(texts[:_MOST_NAMED]) + more


def direction(change: CounterChange) -> str:
    """The words are the same if the change is accepted."""
    return STATES[change.model_copy(update={"accepted": None}).state][0]


def named(what: str, names: Sequence[str]) -> str | None:
    """``2 left out: a, b`` for `what` and the names, or None if there are none."""
    return f"{len(names)} {what}: {first(names)}" if names else None


def acceptance(accepted: Accepted) -> str:
    entry = f"{accepted.benchmark} at {accepted.revision}"
    return one_line(f"accepted until {accepted.expires} ({entry}): {accepted.reason}")


def change_of(change: CounterChange) -> str:
    """A text such as ``forward.operators 1,204 -> 1,205``."""
    return f"{change.counter} {count(change.base)} -> {count(change.head)}"


def headline(judgement: Judgement) -> str:
    """A head that only needs more memory is called so."""
    worse = [change for change in judgement.counters if change.state is State.WORSE]
    slower = [time for time in judgement.times if time.verdict is Verdict.SLOWER and time.accepted is None]
    drifts = [drift for drift in judgement.drifts if drift.accepted is None]
    is_memory = worse and not slower and not drifts and all(kind_of(change.counter).is_memory for change in worse)
    is_slower = judgement.verdict is Verdict.SLOWER
    return f"{'More memory' if is_slower and is_memory else judgement.verdict.capitalize()}: {one_line(judgement.why)}"


def regressions(
    worse: Sequence[CounterChange],
    slower: Sequence[TimeJudgement],
    drifts: Sequence[Drift],
    blames: Sequence[Blame],
    counted_cases: int,
) -> Iterator[str]:
    if slower:
        yield first([_by_how_much(time) for time in slower])
    memory = [change for change in worse if kind_of(change.counter).is_memory]
    for changes, word in (
        ([change for change in worse if change not in memory], "worse"),
        (memory, "larger, of memory,"),
    ):
        if changes:
            cases = list(dict.fromkeys(change.benchmark for change in changes))
            number = "1 counter is" if len(changes) == 1 else f"{len(changes)} counters are"
            name = f" ({cases[0]})" if len(cases) == 1 else ""
            where = f"{len(cases)} of {max(counted_cases, len(cases))} counted cases{name}"
            yield f"{number} {word} in {where}: {_with_code(changes, blames)}"
    if drifts:
        yield f"drifted: {first([drift.benchmark for drift in drifts])}"


def _by_how_much(time: TimeJudgement) -> str:
    """``my_step by 5.2 %``, of the ratio that decided."""
    ratio, of = time.decisive, QUANTITIES[time.quantity].after
    return time.benchmark if ratio is None else f"{time.benchmark} by {100 * abs(ratio.value - 1):.1f} %{of}"


def _with_code(worse: Sequence[CounterChange], blames: Sequence[Blame]) -> str:
    """The first worse counter whose events pass through known code, with it; else the first one, and changed code."""
    by_counter = {(blame.benchmark, blame.counter): blame.causes[0] for blame in blames if blame.causes}
    causes = [(change, by_counter.get((change.benchmark, change.counter))) for change in worse]
    proven = [(change, cause) for change, cause in causes if cause and cause.head > cause.base]
    change, cause = [*proven, *causes][0]
    return f"{change_of(change)}, in {cause.function} at {cause.file}:{cause.lines[0]}" if cause else change_of(change)


def between(undecided: Sequence[TimeJudgement]) -> str:
    """The intervals of the ratios that left benchmarks undecided, such as ``my_step by -0.8 % to +3.1 %``."""
    texts = []
    for time in undecided:
        ratio, of = time.decisive, QUANTITIES[time.quantity].after
        interval = "not measured" if ratio is None else f"by {' to '.join(map(growth, ratio.ends))}{of}"
        texts.append(f"{time.benchmark} {interval}")
    return first(texts)


def only_times_can_tell(worse: Sequence[CounterChange], better: int) -> str:
    grown = first([f"{change.counter} {change.more:+,} in {change.benchmark}" for change in worse])
    return f"{grown}, and {better} counters are better; only step times can tell: run with --tiers 0,1"


def gain(faster: Sequence[TimeJudgement]) -> list[str]:
    return [f"faster: {first([_by_how_much(time) for time in faster])}"] if faster else []


def passing(
    counters: Sequence[CounterChange], faster: Sequence[TimeJudgement], accepted: int, new: Sequence[str], what: str
) -> Iterator[str]:
    """Yield what is faster, what was compared (`what`), and what passes in spite of a growth."""
    traded = [change for change in counters if change.traded_for is not None]
    tolerated = [change for change in counters if change.state is State.TOLERATED]
    if faster:
        yield f"{gain(faster)[0]}{_with_more(traded)}"
    if what:
        yield f"{what} but what is accepted ({accepted})" if accepted else what
    if traded and not faster:
        yield f"the step times are not longer{_with_more(traded)}"
    if tolerated:
        yield f"tolerated{_with_more(tolerated)}"
    if new:
        yield f"new, with nothing to hold it against: {first(new)}"


def _with_more(changes: Sequence[CounterChange]) -> str:
    """``, with 2 Python calls more in forward``: the largest growth of each counter."""
    most: dict[str, float] = {}
    for change in changes:
        most[change.counter] = max(change.more, most.get(change.counter, 0))
    return f", with {first([f'{more:,} more in {counter}' for counter, more in most.items()])}" if most else ""
