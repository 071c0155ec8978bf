"""One verdict from the findings of all tiers. Pure."""

from collections.abc import Iterator, Sequence

from dpbench.gate.judgement import CounterChange, Drift, TimeJudgement, Verdict

_MOST_NAMED = 3


def overall_verdict(
    counters: Sequence[CounterChange],
    times: Sequence[TimeJudgement],
    drifts: Sequence[Drift],
    *,
    new: Sequence[str] = (),
    gap: str | None = None,
    compared: bool = True,
) -> tuple[Verdict, str]:
    """Return the verdict and its reason in one line.

    SLOWER if any finding is a regression that is neither accepted nor traded. Else UNDECIDED if a benchmark is, and is
    not accepted, or if tier 0 has a `gap`. `new` are the names of benchmarks that base does not have.
    `compared` is False if there are no others.
    """
    if reasons := list(_regressions(counters, times, drifts)):
        return Verdict.SLOWER, "; ".join(reasons)
    undecided = [time.benchmark for time in times if time.verdict is Verdict.UNDECIDED and time.accepted is None]
    gaps = [f"not decided: {_names(undecided)}"] if undecided else []
    gaps += [gap] if gap else []
    if gaps:
        return Verdict.UNDECIDED, "; ".join(gaps)
    return Verdict.PASS, "; ".join(_passing(counters, times, drifts, new, compared=compared))


def _passing(
    counters: Sequence[CounterChange],
    times: Sequence[TimeJudgement],
    drifts: Sequence[Drift],
    new: Sequence[str],
    *,
    compared: bool,
) -> Iterator[str]:
    accepted = sum(each.accepted is not None for each in counters)
    accepted += sum(each.accepted is not None for each in times) + sum(each.accepted is not None for each in drifts)
    if compared:
        yield f"nothing is slower but what is accepted ({accepted})" if accepted else "nothing is slower"
    if traded := sum(each.traded_for is not None for each in counters):
        yield f"traded: {traded} counters of Python calls are worse, and the step times are not"
    if new:
        yield f"new, with nothing to hold it against: {_names(new)}"


def _regressions(
    counters: Sequence[CounterChange], times: Sequence[TimeJudgement], drifts: Sequence[Drift]
) -> Iterator[str]:
    worse = [change for change in counters if change.is_worse and change.accepted is None and change.traded_for is None]
    if worse:
        of = dict.fromkeys(change.benchmark for change in worse)
        is_worse = "counter is worse" if len(worse) == 1 else "counters are worse"
        yield f"{len(worse)} {is_worse}, of {len(of)} case{'s'[: len(of) > 1]}"
    slower = [time.benchmark for time in times if time.verdict is Verdict.SLOWER and time.accepted is None]
    if slower:
        yield f"slower: {_names(slower)}"
    drifted = [drift.benchmark for drift in drifts if drift.accepted is None]
    if drifted:
        yield f"drifted: {_names(drifted)}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
