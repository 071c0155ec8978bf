"""From the findings of all tiers to one verdict, and to the line that history keeps. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from dpbench.gate.history import HistoryLine, StepTimes
from dpbench.gate.judgement import CounterChange, Drift, Judgement, TimeJudgement, Verdict
from dpbench.results.record import Environment

_MOST_NAMED = 3


def overall(
    counters: Sequence[CounterChange], times: Sequence[TimeJudgement], drifts: Sequence[Drift]
) -> tuple[Verdict, str]:
    """Slower where anything is that nobody answers for, else undecided where a benchmark is; and why, in one line."""
    if reasons := list(_slower(counters, times, drifts)):
        return Verdict.SLOWER, "; ".join(reasons)
    undecided = [time.benchmark for time in times if time.verdict is Verdict.UNDECIDED and time.accepted is None]
    if undecided:
        return Verdict.UNDECIDED, f"not decided: {_names(undecided)}"
    accepted = sum(each.accepted is not None for each in counters)
    accepted += sum(each.accepted is not None for each in times) + sum(each.accepted is not None for each in drifts)
    return Verdict.PASS, f"nothing is slower but what is accepted ({accepted})" if accepted else "nothing is slower"


def _slower(
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


def history_line(
    judgement: Judgement, case_ids: Mapping[str, str], twin_alarmed: Mapping[str, bool], environment: Environment
) -> HistoryLine:
    """Of a gate that measured times; `case_ids` and `twin_alarmed` are by benchmark."""
    assert judgement.base.commit is not None
    return HistoryLine(
        started_at=judgement.started_at,
        base_commit=judgement.base.commit,
        head_commit=judgement.head.commit,
        verdict=judgement.verdict,
        environment=environment,
        benchmarks=tuple(
            StepTimes(
                name=time.benchmark,
                case=case_ids[time.benchmark],
                base_step_s=time.base_step_s,
                head_step_s=time.head_step_s,
                ratio=time.ratio.value,
                rounds=time.rounds,
                twin_alarmed=twin_alarmed.get(time.benchmark),
            )
            for time in judgement.times
            if time.base_step_s and time.head_step_s and time.ratio
        ),
    )
