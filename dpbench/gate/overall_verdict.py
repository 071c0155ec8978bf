"""One verdict from the findings of all tiers. Pure."""

from collections.abc import Iterator, Sequence

from dpbench.gate.judgement import CounterChange, Drift, TimeJudgement, Verdict

_MOST_NAMED = 3


def overall_verdict(
    counters: Sequence[CounterChange], times: Sequence[TimeJudgement], drifts: Sequence[Drift]
) -> tuple[Verdict, str]:
    """Return the verdict and its reason in one line.

    SLOWER if any finding is a regression that is not accepted. Else UNDECIDED if a benchmark is, and is not accepted.
    """
    if reasons := list(_regressions(counters, times, drifts)):
        return Verdict.SLOWER, "; ".join(reasons)
    undecided = [time.benchmark for time in times if time.verdict is Verdict.UNDECIDED and time.accepted is None]
    if undecided:
        return Verdict.UNDECIDED, f"not decided: {_names(undecided)}"
    accepted = sum(each.accepted is not None for each in counters)
    accepted += sum(each.accepted is not None for each in times) + sum(each.accepted is not None for each in drifts)
    return Verdict.PASS, f"nothing is slower but what is accepted ({accepted})" if accepted else "nothing is slower"


def _regressions(
    counters: Sequence[CounterChange], times: Sequence[TimeJudgement], drifts: Sequence[Drift]
) -> Iterator[str]:
    worse = [change for change in counters if change.is_worse and change.accepted is None]
    if worse:
        of = dict.fromkeys(change.benchmark for change in worse)
        yield f"{len(worse)} counters are worse, of {len(of)} cases"
    slower = [time.benchmark for time in times if time.verdict is Verdict.SLOWER and time.accepted is None]
    if slower:
        yield f"slower: {_names(slower)}"
    drifted = [drift.benchmark for drift in drifts if drift.accepted is None]
    if drifted:
        yield f"drifted: {_names(drifted)}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
