"""A gate's judgement as tables, lines and words, which all of its forms share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dpbench.gate.judgement import (
    Accepted,
    CounterChange,
    Drift,
    Judgement,
    Revision,
    TimeJudgement,
)
from dpbench.gate.words import QUANTITIES, count, direction, growth
from dpbench.judge.decision import Verdict
from dpbench.judge.estimate import Estimate
from dpbench.report.gate.changed_counters import worst_first
from dpbench.report.table import NONE, Column, Table
from dpbench.text.outside import one_line
from dpbench.text.quantities import number, plural, time_unit

_MOST_UPPER = 0.2
"""A rate of false alarms with a higher upper bound rests on too few gates to say something."""
_MOST_NAMED = 3


def counters_table(judgement: Judgement, most: int) -> Table:
    columns = [
        _benchmark(),
        _text("counter", lambda change: one_line(change.counter)),
        Column("base", lambda change: count(change.base)),
        Column("head", lambda change: count(change.head)),
        _text("is", lambda change: _accepted(direction(change), change.accepted)),
    ]
    return _table(f"Counters that changed ({counted(judgement)})", columns, worst_first(judgement.counters), most)


def _text(header: str, value: Callable[[Any], str]) -> Column:
    return Column(header, value, is_text=True)


def _benchmark() -> Column:
    return _text("benchmark", lambda finding: one_line(finding.benchmark))


def moved(judgement: Judgement) -> list[TimeJudgement]:
    """The benchmarks that did not simply pass, slower ones first."""
    return [time for time in slowest_first(judgement.times) if not _passed(time)]


def _passed(time: TimeJudgement) -> bool:
    return time.verdict is Verdict.PASS and time.accepted is None


def times_table(times: Sequence[TimeJudgement], most: int | None = None) -> Table:
    """A row has the ratio on which its verdict rests."""
    unit, in_unit = _unit(x for time in times for x in (time.base_step_s, time.head_step_s))
    columns = [
        _benchmark(),
        Column(f"base, {unit}", lambda time: time.base_step_s, in_unit),
        Column(f"head, {unit}", lambda time: time.head_step_s, in_unit),
        Column("change", lambda time: time.decisive and change(time)),
        Column("head / base", lambda time: time.decisive, interval),
        _text("verdict", lambda time: _accepted(time.verdict, time.accepted)),
        Column("tolerated", lambda time: time.threshold, share),
        Column("smallest\nseen", lambda time: time.detectable, share),
        Column("base / base", lambda time: time.twin, interval),
    ]
    return _table("Step times", columns, times, most)


def change(time: TimeJudgement) -> str:
    """``+5.2 %``, ``mean +5.2 %`` or ``later steps +5.2 %``: the growth on which the verdict rests."""
    return f"{QUANTITIES[time.quantity].before}{growth(time.decisive.value)}" if time.decisive else NONE


def reasons(judgement: Judgement) -> Iterator[str]:
    """What the rows do not say: which steps grew, and why a benchmark is undecided or broken."""
    unclear: dict[tuple[Verdict, str], list[str]] = {}
    for time in moved(judgement):
        if time.verdict in (Verdict.UNDECIDED, Verdict.BROKEN):
            unclear.setdefault((time.verdict, time.why), []).append(time.benchmark)
        elif finding := QUANTITIES[time.quantity].finding:
            yield one_line(f"{time.benchmark}: {change(time)}: {finding}")
    yield from (one_line(f"{', '.join(names)}: {verdict}: {why}") for (verdict, why), names in unclear.items())


def others(judgement: Judgement) -> Iterator[str]:
    """One line for all benchmarks that passed, such as ``6 other benchmarks passed: ratio 0.998 to 1.003``."""
    passed = [time for time in judgement.times if _passed(time)]
    if not passed:
        return
    other = "" if len(passed) == len(judgement.times) else "other "
    names = (
        f"{len(passed):,} {other}benchmarks" if len(passed) > _MOST_NAMED else ", ".join(t.benchmark for t in passed)
    )
    ratios = sorted(time.ratio.value for time in passed if time.ratio)
    ends = dict.fromkeys(f"{end:.3f}" for end in (*ratios[:1], *ratios[-1:]))
    yield one_line(f"{names} passed: ratio {' to '.join(ends)}")


def slowest_first(times: Sequence[TimeJudgement]) -> list[TimeJudgement]:
    order = (Verdict.SLOWER, Verdict.BROKEN, Verdict.UNDECIDED, Verdict.PASS, Verdict.FASTER)

    def place(time: TimeJudgement) -> tuple[int, bool, float]:
        return order.index(time.verdict), time.accepted is not None, -time.decisive.value if time.decisive else 0.0

    return sorted(times, key=place)


def drifted(drift: Drift) -> str:
    unit, in_unit = _unit((drift.before_s, drift.after_s))
    return one_line(
        f"{in_unit(drift.before_s)} -> {in_unit(drift.after_s)} {unit}, "
        f"{growth_between(drift.before_s, drift.after_s)} "
        f"since {drift.since_commit[:10]} of {drift.since}, seen in {drift.points:,} points"
    )


def acceptances(judgement: Judgement) -> Iterator[Accepted]:
    """Each accepted regression that covers a finding, once."""
    findings: list[CounterChange | TimeJudgement | Drift] = [*judgement.counters, *judgement.times, *judgement.drifts]
    yield from dict.fromkeys(finding.accepted for finding in findings if finding.accepted is not None)


def _table(title: str, columns: Sequence[Column], rows: Sequence[Any], most: int | None) -> Table:
    more = (f"... and {len(rows) - most:,} more",) if most is not None and len(rows) > most else ()
    return Table(title, columns, rows[:most], least_key=12, below=more)


def _accepted(word: str, accepted: Accepted | None) -> str:
    return word if accepted is None else f"{word}, accepted"


def _unit(times_s: Iterable[float | None]) -> tuple[str, Callable[[float], str]]:
    """The name of the times' unit, and the function that writes a time in it."""
    unit_s, unit = time_unit([time_s for time_s in times_s if time_s])
    return unit, lambda time_s: number(time_s / unit_s)


def share(value: float) -> str:
    """``0.0015`` becomes ``0.15 %``."""
    digits = number(100 * value)
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits} %"


def growth_between(before: float, after: float) -> str:
    return growth(after / before) if before else NONE


def interval(ratio: Estimate) -> str:
    """``1.052 [1.041, 1.063]``."""
    low, high = ratio.ends
    return f"{ratio.value:.3f} [{low:.3f}, {high:.3f}]"


def counted(judgement: Judgement) -> str:
    if judgement.uncounted_cases:
        return f"{judgement.counted_cases:,} of {judgement.counted_cases + judgement.uncounted_cases:,} cases counted"
    return f"{plural(judgement.counted_cases, 'case')} counted"


def revision(of: Revision) -> str:
    """The short hash, the revision as typed unless that is the hash, and the subject.

    A merge base is called so. Without a commit, the text begins with the revision as typed.
    """
    if of.commit is None:
        return one_line(f"{of.asked or of.short} {of.subject}")
    if of.tip is not None:
        tip = "" if of.tip.startswith(of.asked) else f", {of.tip[:10]}"
        return one_line(f"{of.short} (merge base with {of.asked}{tip}) {of.subject}")
    asked = "" if of.commit.startswith(of.asked) else f"({of.asked})"
    return one_line(f"{of.short} {asked} {of.subject}")


def measured(time: TimeJudgement) -> str:
    """The ratio, the noise and the number of rounds."""
    ratio = time.decisive
    parts = [f"{change(time)}, head / base {interval(ratio)}"] if ratio else ["nothing measured"]
    parts.append(f"tolerated {share(time.threshold)}")
    parts += [f"smallest seen {share(time.detectable)}"] if time.detectable is not None else []
    parts += [f"base / base {interval(time.twin)}"] if time.twin else []
    return "; ".join([*parts, f"{time.rounds:,} rounds"])


def reliability(judgement: Judgement) -> tuple[str, str]:
    """The rate of false alarms, and the smallest growth that is detected.

    The rate is that by design, and the measured one if it says something: its bound is low, or it is no single chance.
    """
    alarms, rate = judgement.false_alarms, f"by design in at most {share(judgement.alarm_rate)} of gates"
    if alarms is not None and (alarms.upper <= _MOST_UPPER or alarms.alarms > 1):
        of = f"{alarms.alarms:,} of {alarms.of:,}, at most {share(alarms.upper)} ({one_line(alarms.gates)})"
        rate = f"{rate}; measured: {of}"
    smallest = " and ".join(_limits(judgement)) or "not known, nothing was measured"
    return f"equal code called slower: {rate}", f"smallest detectable change: {smallest}"


def _limits(judgement: Judgement) -> Iterator[str]:
    if judgement.counted_cases:
        counters = "a counter of the counted cases" if judgement.uncounted_cases else "any counter"
        yield f"a count of 1 in {counters} that is not tolerated ({counted(judgement)})"
    seen = [time.detectable for time in judgement.times if time.detectable is not None]
    if seen:
        least, most = share(min(seen)), share(max(seen))
        yield f"{least if least == most else f'{least} to {most}, by benchmark,'} of a step's time, nine times in ten"


def circumstances(judgement: Judgement) -> str:
    minutes, seconds = divmod(round(judgement.duration_s), 60)
    text = f"took {f'{minutes} min ' if minutes else ''}{seconds} s from {judgement.started_at}"
    if judgement.environment is not None:
        here = judgement.environment
        text += f" on {here.hostname}: {here.cpu_model}, {here.cores} cores, {', '.join([*here.gpus, here.os])}"
        text += f", python {here.python}, torch {here.torch}"
    return one_line(text)
