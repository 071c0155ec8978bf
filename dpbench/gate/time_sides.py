"""Tier 1: take rounds until they decide every benchmark, one is slower, or time is up."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from dpbench.gate import words
from dpbench.gate.benchmarks import Benchmarks
from dpbench.gate.judgement import TimeJudgement
from dpbench.gate.prepare import Prepared, Progress
from dpbench.gate.rounds import RoundRatio, SuiteRound, take_round
from dpbench.gate.settings import Benchmark, BorrowedBenchmark, is_value
from dpbench.gate.sides import Sides
from dpbench.gate.time_verdict import judge, rounds_to_decide, twin_alarms
from dpbench.judge.decision import Verdict
from dpbench.judge.repeated import Analysis, Risks, analysis_rounds, risks_for
from dpbench.records.record import Environment

_LEAST_ROUNDS = 3
"""Two rounds that agree by chance would have almost no error: equal code was called slower so."""

TakeRound = Callable[[Sequence[Benchmark], int], SuiteRound]


@dataclass(frozen=True)
class Times:
    """`environment` is None if no round was taken.

    `twin_alarmed` has the benchmarks whose twin was judged, and `cases` what the history compares them by, by name.
    `notes` has the first note of each benchmark. `more_s` are the seconds beyond the budget that would decide what is
    undecided, None if no time is likely to.
    """

    judgements: tuple[TimeJudgement, ...] = ()
    twin_alarmed: dict[str, bool] = field(default_factory=dict)
    environment: Environment | None = None
    notes: tuple[str, ...] = ()
    more_s: float | None = 0.0
    cases: dict[str, str] = field(default_factory=dict)

    def beside(self, other: "Times") -> "Times":
        more_s = None if self.more_s is None or other.more_s is None else self.more_s + other.more_s
        return Times(
            self.judgements + other.judgements,
            self.twin_alarmed | other.twin_alarmed,
            other.environment or self.environment,
            self.notes + other.notes,
            more_s,
        )

    @property
    def verdict(self) -> Verdict:
        """The verdict of tier 1 alone, before accepted regressions."""
        verdicts = {judgement.verdict for judgement in self.judgements}
        return next((verdict for verdict in (Verdict.SLOWER, Verdict.UNDECIDED) if verdict in verdicts), Verdict.PASS)


def time_sides(prepared: Prepared, benchmarks: Benchmarks, sides: Sides, progress: Progress) -> Times:
    """The project's own steps come first. Micro-benchmarks of its suites have the other half, and what steps leave."""
    if 1 not in prepared.tiers:
        return Times()
    end_s = prepared.start_s + prepared.budget_s + sides.build_s
    timed = [benchmark for benchmark in benchmarks.both if not is_value(benchmark)]
    borrowed = [benchmark for benchmark in timed if isinstance(benchmark, BorrowedBenchmark)]
    own_benchmarks = [benchmark for benchmark in timed if benchmark not in borrowed]
    times = Times()
    for group, share in ((own_benchmarks, 0.5 if borrowed else 1.0), (borrowed, 1.0)):
        if group:
            left_s = 0.0 if times.verdict is Verdict.SLOWER else share * (end_s - time.monotonic())
            measured = measure_times(
                group,
                lambda undecided, number: take_round(undecided, sides, number, prepared.lanes),
                alarm_rate=prepared.settings.alarm_rate,
                budget_s=left_s,
                of=len(timed),
                progress=progress,
            )
            times = times.beside(measured)
    if times.environment is None:
        return times
    cores = times.environment.cores
    return replace(times, cases={benchmark.name: benchmark.series(cores, prepared.lanes) for benchmark in timed})


def budget_that_decides(times: Times, budget_s: float) -> str | None:
    """None if the verdict on times is decided."""
    if times.verdict is not Verdict.UNDECIDED:
        return None
    if times.more_s is None:
        return words.NO_BUDGET
    return words.BUDGET.format(ceil((budget_s + times.more_s) * 1.2 / 60))


@dataclass
class _Budget:
    """One more round must fit in that is as long as the longest so far."""

    budget_s: float
    clock: Callable[[], float]
    longest_s: float = 0.0
    _begin_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._begin_s = self.clock()

    @property
    def left_s(self) -> float:
        return self.budget_s - (self.clock() - self._begin_s)

    def has_room(self) -> bool:
        return self.left_s > self.longest_s

    def share_used(self) -> float:
        """From 0 to 1; 1 if there is no room for a round."""
        return 1 - self.left_s / self.budget_s if self.has_room() else 1.0

    def timed(self, take: TakeRound, benchmarks: Sequence[Benchmark], number: int) -> SuiteRound:
        start_s = self.clock()
        taken = take(benchmarks, number)
        self.longest_s = max(self.longest_s, self.clock() - start_s)
        return taken


def measure_times(
    benchmarks: Sequence[Benchmark],
    take: TakeRound,
    *,
    alarm_rate: float,
    budget_s: float,
    of: int = 0,
    progress: Progress = lambda *_: None,
    clock: Callable[[], float] = time.monotonic,
) -> Times:
    """Judge each benchmark, in their order. They share the alarm rate with others, `of` benchmarks in all.

    Decided benchmarks take no further rounds. No round begins if one as long as the longest so far would exceed
    `budget_s`.
    """
    risks, budget = risks_for(alarm_rate, of or len(benchmarks)), _Budget(budget_s, clock)
    rounds: dict[str, list[RoundRatio]] = {benchmark.name: [] for benchmark in benchmarks}
    judged = {benchmark.name: _not_judged(benchmark, 0) for benchmark in benchmarks}
    twins, notes = dict[str, bool](), dict[str, str]()
    undecided, number, environment = list(benchmarks), 0, None
    analysis: Analysis | None = None
    for until in analysis_rounds():
        while number < until and budget.has_room():
            progress(f"round {number + 1}, benchmarks to decide: {len(undecided)}", budget.left_s)
            taken = budget.timed(take, undecided, number)
            number, environment = number + 1, taken.environment
            for name, note in taken.notes.items():
                notes.setdefault(name, f"{name}: {note}")
            for name, ratio in taken.ratios.items():
                rounds[name].append(ratio)
        analysis = _next_analysis(analysis, budget)
        for benchmark in undecided:
            judged[benchmark.name] = _judged(benchmark, rounds[benchmark.name], analysis, risks)
            if number >= _LEAST_ROUNDS:
                # One alarm at any analysis counts, because head's gate would have ended there.
                alarms = twin_alarms(benchmark, rounds[benchmark.name], analysis, risks)
                twins[benchmark.name] = twins.get(benchmark.name, False) or alarms
        undecided = [benchmark for benchmark in undecided if judged[benchmark.name].verdict is Verdict.UNDECIDED]
        is_slower = any(judgement.verdict is Verdict.SLOWER for judgement in judged.values())
        if is_slower or not undecided or not budget.has_room():
            break
    needed = [rounds_to_decide(judged[benchmark.name]) for benchmark in undecided]
    more_s = None if None in needed else max(filter(None, needed), default=0) * budget.longest_s
    return Times(tuple(judged.values()), twins, environment, tuple(notes.values()), more_s)


def _next_analysis(last: Analysis | None, budget: _Budget) -> Analysis:
    number, before = (last.number, last.share) if last is not None else (0, 0.0)
    return Analysis(number + 1, max(before, budget.share_used()), before)


def _judged(benchmark: Benchmark, rounds: Sequence[RoundRatio], analysis: Analysis, risks: Risks) -> TimeJudgement:
    if len(rounds) < _LEAST_ROUNDS:
        return _not_judged(benchmark, len(rounds))
    return judge(benchmark, rounds, analysis, risks)


def _not_judged(benchmark: Benchmark, rounds: int) -> TimeJudgement:
    return TimeJudgement(
        benchmark=benchmark.name,
        verdict=Verdict.UNDECIDED,
        why=words.NO_ROUNDS.format(rounds, _LEAST_ROUNDS),
        threshold=benchmark.threshold,
        rounds=rounds,
        looks=0,
        cores="",
    )
