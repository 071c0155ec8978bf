"""The words and digits of a judgement that all forms share."""

from collections.abc import Iterator

from dpbench.gate.judgement import Accepted, FalseAlarms, Judgement, Revision, TimeJudgement, TimeRatio
from dpbench.report.units import number
from dpbench.sweep.outside import one_line

NONE = "-"


def share(value: float) -> str:
    """``0.0015`` becomes ``0.15 %``."""
    digits = number(100 * value)
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits} %"


def growth(times: float) -> str:
    """``1.052`` becomes ``+5.2 %``."""
    return f"{round(100 * (times - 1), 1) + 0.0:+,.1f} %"  # + 0.0 turns -0.0 into 0.0


def growth_between(before: float, after: float) -> str:
    return growth(after / before) if before else NONE


def interval(ratio: TimeRatio) -> str:
    """Return the ratio and its interval as text: ``1.052 [1.041, 1.063]``."""
    return f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def headline(judgement: Judgement) -> str:
    return f"{judgement.verdict.capitalize()}: {one_line(judgement.why)}"


def counted(judgement: Judgement) -> str:
    if judgement.uncounted_cases:
        return f"{judgement.counted_cases:,} of {judgement.counted_cases + judgement.uncounted_cases:,} cases counted"
    return f"{judgement.counted_cases:,} {'case' if judgement.counted_cases == 1 else 'cases'} counted"


def revision(found: Revision) -> str:
    """Return the short hash, the revision as typed unless that is the hash, and the subject.

    A merge base is called so, with the commit that was typed.

    Without a commit, the text begins with the revision as typed.
    """
    if found.commit is None:
        return one_line(f"{found.asked or found.short} {found.subject}")
    if found.tip is not None:
        tip = "" if found.tip.startswith(found.asked) else f", {found.tip[:10]}"
        return one_line(f"{found.short} (merge base with {found.asked}{tip}) {found.subject}")
    asked = "" if found.commit.startswith(found.asked) else f"({found.asked})"
    return one_line(f"{found.short} {asked} {found.subject}")


def acceptance(found: Accepted) -> str:
    return one_line(f"accepted until {found.expires} ({found.benchmark} at {found.revision}): {found.reason}")


def measured(time: TimeJudgement) -> str:
    """Return the ratio, the noise and the number of rounds of a benchmark in one line."""
    parts = [f"{growth(time.ratio.value)}, head / base {interval(time.ratio)}"] if time.ratio else ["nothing measured"]
    parts.append(f"tolerated {share(time.threshold)}")
    parts += [f"smallest seen {share(time.detectable)}"] if time.detectable is not None else []
    parts += [f"base / base {interval(time.twin)}"] if time.twin else []
    return "; ".join([*parts, f"{time.rounds:,} rounds"])


def reliability(judgement: Judgement) -> tuple[str, str]:
    """Return two lines: the rate of false alarms, and the smallest growth that is detected."""
    return _false_alarms(judgement.false_alarms, judgement.alarm_rate), _smallest(judgement)


def circumstances(judgement: Judgement) -> str:
    """Return one line with the gate's duration, start time, machine and versions."""
    minutes, seconds = divmod(round(judgement.duration_s), 60)
    text = f"took {minutes} min {seconds} s from {judgement.started_at}"
    if judgement.environment is not None:
        found = judgement.environment
        text += f" on {found.hostname}: {found.cpu_model}, {found.cores} cores, {', '.join([*found.gpus, found.os])}"
        text += f", python {found.python}, torch {found.torch}"
    return one_line(text)


def _false_alarms(found: FalseAlarms | None, by_design: float) -> str:
    measured = (
        "not measured on this machine; benchmarks/gate_self_test.py of dpbench's checkout measures it"
        if found is None
        else f"{found.alarms:,} of {found.of:,}, at most {share(found.upper)}; {one_line(found.gates)}"
    )
    return f"identical code called slower: {measured} (by design at most {share(by_design)} of suites)"


def _smallest(judgement: Judgement) -> str:
    return f"smallest detectable change: {' and '.join(_limits(judgement)) or 'not known, nothing was measured'}"


def _limits(judgement: Judgement) -> Iterator[str]:
    if judgement.counted_cases:
        counters = "a counter of the counted cases" if judgement.uncounted_cases else "any counter"
        yield f"a count of 1 in {counters} ({counted(judgement)})"
    found = [time.detectable for time in judgement.times if time.detectable is not None]
    if found:
        least, most = share(min(found)), share(max(found))
        yield f"{least if least == most else f'{least} to {most}, by benchmark,'} of a step's time, nine times in ten"
