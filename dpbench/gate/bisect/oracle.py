"""The answer of one commit: is it worse than the good one? By one exact counter, or by the times of one benchmark."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dpbench.errors import GateError
from dpbench.gate.bisect.search import CommitAnswer
from dpbench.gate.judgement import CounterChange, TimeJudgement, Verdict
from dpbench.gate.settings import Benchmark
from dpbench.gate.take_round import Sides
from dpbench.gate.tier0.counters import compare_records, job_of
from dpbench.gate.tier0.new_benchmarks import has_factory
from dpbench.gate.tier1 import measure_times, round_taker
from dpbench.results.counts import CountRecord
from dpbench.results.record import Outcome
from dpbench.run.count_all import CountingError, run_jobs
from dpbench.run.launch import Launcher
from dpbench.run.wrapper_of import WRAPPER, has_wrapper
from dpbench.sweep.case import Case
from dpbench.sweep.names import is_factory

MORE_TIME = 2
"""How much longer an undecided commit is measured the second time."""


class Oracle(Protocol):
    """Compares a commit with the good one. `measured` names what is compared."""

    @property
    def measured(self) -> str: ...

    def ask(self, folder: Path) -> tuple[CommitAnswer, str]:
        """Return the answer of the commit in `folder`, and why in one line."""
        ...


@dataclass
class CounterOracle:
    """Counts the cases of one counter. `olds` are their records of the good commit, in the order of `cases`."""

    wanted: CounterChange
    cases: Sequence[Case]
    olds: Sequence[CountRecord]
    good: Path
    launch: Launcher

    @property
    def measured(self) -> str:
        return f"{self.wanted.counter} of {self.wanted.benchmark}"

    def ask(self, folder: Path) -> tuple[CommitAnswer, str]:
        if lacking := lacks(self.good, folder, self.cases[0].workload):
            return CommitAnswer.SKIPPED, lacking
        try:
            news = run_jobs([job_of(case) for case in self.cases], folder=folder, launch=self.launch)
        except CountingError as error:
            return CommitAnswer.SKIPPED, str(error)
        for record in news:
            if record.outcome is not Outcome.OK:
                return CommitAnswer.SKIPPED, record.why
        found = change_of(self.wanted, compare_records(self.olds, news))
        if found is None:
            return CommitAnswer.GOOD, f"{self.wanted.counter}: {self.wanted.base} as in the good one"
        return (
            CommitAnswer.BAD if found.is_worse else CommitAnswer.GOOD,
            f"{found.counter}: {found.base} -> {found.head}",
        )


def change_of(wanted: CounterChange, changes: Sequence[CounterChange]) -> CounterChange | None:
    """Return the change of the same counter and case. Pure."""
    same = (c for c in changes if (c.benchmark, c.counter) == (wanted.benchmark, wanted.counter))
    return next(same, None)


@dataclass
class TimeOracle:
    """Times one benchmark against the good commit. An undecided commit is timed again, `MORE_TIME` as long."""

    benchmark: Benchmark
    good: Path
    lanes: tuple[str, ...]
    alarm_rate: float
    budget_s: float
    launch: Launcher
    progress: Callable[[str], object]

    @property
    def measured(self) -> str:
        return f"step time of {self.benchmark.name}"

    def ask(self, folder: Path) -> tuple[CommitAnswer, str]:
        if lacking := lacks(self.good, folder, self.benchmark.workload):
            return CommitAnswer.SKIPPED, lacking
        try:
            judged = self._timed(folder, self.budget_s)
            if judged.verdict is Verdict.UNDECIDED:
                judged = self._timed(folder, MORE_TIME * self.budget_s)
        except GateError as error:
            if not str(error).startswith("head: "):
                raise
            return CommitAnswer.SKIPPED, str(error).removeprefix("head: ")
        answers = {Verdict.SLOWER: CommitAnswer.BAD, Verdict.PASS: CommitAnswer.GOOD}
        ratio = f"{judged.ratio.value:.3f} [{judged.ratio.low:.3f}, {judged.ratio.high:.3f}]: " if judged.ratio else ""
        return answers.get(judged.verdict, CommitAnswer.SKIPPED), f"{judged.verdict}: {ratio}{judged.why}"

    def _timed(self, folder: Path, budget_s: float) -> TimeJudgement:
        take = round_taker(Sides(self.good, folder), self.lanes, self.launch)
        benchmarks, rate = [self.benchmark], self.alarm_rate
        return measure_times(benchmarks, take, alarm_rate=rate, budget_s=budget_s, progress=self.progress).judgements[0]


def lacks(good: Path, folder: Path, workload: str) -> str | None:
    """Say what the commit in `folder` lacks of the good one: the wrapper or the factory. Else None.

    Without this, the installed wrapper or factory would be measured in its place.
    """
    if has_wrapper(good) and not has_wrapper(folder):
        return f"has no {WRAPPER.replace('.', '/')}"
    if is_factory(workload) and has_factory(good, workload) and not has_factory(folder, workload):
        return f"has no {workload}"
    return None
