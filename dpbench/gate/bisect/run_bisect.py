"""Find the first commit that is worse than GOOD: by the first worse counter, else by the slower benchmark."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dpbench.errors import GateError, ReportedError
from dpbench.gate.bisect.oracle import CounterOracle, Oracle, TimeOracle, change_of
from dpbench.gate.bisect.result import Bisection, BisectStep
from dpbench.gate.bisect.search import CommitAnswer, find_first_bad
from dpbench.gate.judgement import Blame, CounterChange, Verdict
from dpbench.gate.prepare import GateRequest, Prepared, prepare
from dpbench.gate.revisions import EmptyCommitError, Repository, gate_folder
from dpbench.gate.take_round import Sides
from dpbench.gate.tier0.blame import find_blames, jobs_by_benchmark
from dpbench.gate.tier0.counters import compare_records, count_side, counted_cases, job_of, name_of
from dpbench.gate.tier0.growth import doublings, growth_name
from dpbench.gate.tier0.new_benchmarks import comparable
from dpbench.gate.tier1 import measure_times, round_taker
from dpbench.results.record import Outcome
from dpbench.run.launch import Launcher, launch
from dpbench.run.wrapper_of import has_wrapper
from dpbench.sweep.case import Case

Say = Callable[[BisectStep], object]


@dataclass(frozen=True)
class _Run:
    """What all parts of one bisection share. `good` is the folder of the good commit."""

    request: GateRequest
    repository: Repository
    commits: tuple[str, ...]
    folder: Path
    good: Path
    launch: Launcher
    progress: Callable[[str], object]

    @contextmanager
    def written(self, commit: str) -> Iterator[Path]:
        """Write a commit into a folder that is removed at the end. Raises EmptyCommitError or GateError."""
        place = self.folder / commit
        try:
            self.repository.write_commit(commit, place)
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


def run_bisect(
    request: GateRequest,
    counter: str | None = None,
    *,
    say: Say = lambda _: None,
    launch: Launcher = launch,
    progress: Callable[[str], object] = lambda _: None,
) -> Bisection:
    """Search the commits of ``rev-list --first-parent base..head`` of the request, whose base is good and head is bad.

    Each step is passed to `say`. A merge is one commit. Raises GateError if there is nothing to search.
    """
    try:
        repository = Repository(Path.cwd())
        commits = _row(repository, request)
        with gate_folder() as folder:
            run = _Run(request, repository, commits, folder, folder / "good", launch, progress)
            repository.write_commit(repository.resolve("--bisect", request.base).commit or "", run.good)
            return _searched(run, _oracle(run, counter), say)
    except ReportedError as error:
        raise GateError(" ".join(str(error).split())) from error


def _row(repository: Repository, request: GateRequest) -> tuple[str, ...]:
    """Return the commits to search, oldest first; the last one is BAD. Raises GateError."""
    good, bad = (repository.resolve("--bisect", str(asked)) for asked in (request.base, request.head))
    if good.commit == bad.commit:
        raise GateError(
            f"--bisect: GOOD {good.asked!r} and BAD {bad.asked!r} are one commit, {good.short}; allowed: two commits"
        )
    return repository.first_parents(good, bad)


def _searched(run: _Run, oracle: Oracle, say: Say) -> Bisection:
    steps: list[BisectStep] = []

    def ask(index: int) -> CommitAnswer:
        commit = run.repository.described(run.commits[index])
        run.progress(f"{commit.short}, {oracle.measured}")
        try:
            with run.written(commit.commit) as folder:
                answer, why = oracle.ask(folder)
        except EmptyCommitError:
            answer, why = CommitAnswer.SKIPPED, "holds no files"
        steps.append(BisectStep(commit=commit, answer=answer, why=" ".join(why.split())))
        say(steps[-1])
        return answer

    found = find_first_bad(len(run.commits), ask)
    good = str(run.repository.resolve("--bisect", run.request.base).commit)
    row = [good, *run.commits]
    suspects = row[found.last_good + 2 : found.first_known_bad + 2]
    last_good = row[found.last_good + 1]
    is_found, is_counted = len(suspects) == 1, isinstance(oracle, CounterOracle)
    change, blame = _blamed(run, oracle, last_good, suspects[0]) if is_found and is_counted else (None, None)
    return Bisection(
        measured=oracle.measured,
        good=run.repository.described(good),
        bad=run.repository.described(run.commits[-1]),
        commits=len(run.commits),
        steps=tuple(steps),
        last_good=run.repository.described(last_good),
        suspects=tuple(map(run.repository.described, suspects)),
        change=change,
        blame=blame,
    )


def _oracle(run: _Run, counter: str | None) -> Oracle:
    """Return the oracle for the first worse counter, else for the slower benchmark. Raises GateError if none is."""
    tried = list[str]()
    with run.written(run.commits[-1]) as bad:
        if 0 in run.request.tiers:
            prepared = _prepared(run, bad, 0)
            if found := _worse_counter(run, prepared, bad, counter):
                return found
            tried.append("no counter is worse")
        if 1 in run.request.tiers and counter is None:
            prepared = _prepared(run, bad, 1)
            return _slower_benchmark(run, prepared, bad)
    raise GateError(f"--bisect: BAD is not worse than GOOD: {'; '.join(tried)}; allowed: a BAD that is worse")


def _prepared(run: _Run, bad: Path, tier: int) -> Prepared:
    request = GateRequest(
        base=run.request.base,
        head=run.request.head,
        base_exact=True,
        tiers=(tier,),
        settings=run.request.settings,
        results=run.request.results,
    )
    prepared = prepare(request, run.launch)
    return prepared.without_new(comparable(prepared.settings.benchmarks, run.good, bad))


def _worse_counter(run: _Run, prepared: Prepared, bad: Path, counter: str | None) -> CounterOracle | None:
    """Return the oracle for the first worse counter, or for the first of this name.

    Raises GateError if that is not worse, or if one end alone cannot count a case.
    """
    run.progress("counting one step of GOOD and of BAD")
    cases = counted_cases(prepared.settings.benchmarks, of_the_wrapper=has_wrapper(run.good))
    olds = count_side("GOOD", cases, run.good, run.launch)
    news = count_side("BAD", cases, bad, run.launch)
    for old, new in zip(olds, news, strict=True):
        if old.outcome is new.outcome is Outcome.SKIPPED:
            continue
        for side, record in (("GOOD", old), ("BAD", new)):
            if record.outcome is not Outcome.OK:
                raise GateError(f"--bisect: {side}: {name_of(record.case)}: {record.why}")
    worse = [change for change in compare_records(olds, news) if change.is_worse]
    named = [change for change in worse if counter in (None, change.counter)]
    if counter is not None and not named:
        names = ", ".join(sorted({change.counter for change in worse})) or "none is worse"
        raise GateError(f"--counter: {counter!r} is not worse in BAD than in GOOD; allowed: {names}")
    if not named:
        return None
    records = {old.case: old for old in olds}
    needed = _cases_of(named[0], cases)
    return CounterOracle(named[0], needed, [records[case] for case in needed], run.good, run.launch)


def _cases_of(change: CounterChange, cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """Return the case of a counter, or the two cases of a growth."""
    of_growths = {growth_name(each): (each.small, each.large) for each in doublings()}
    return of_growths.get(change.benchmark) or tuple(case for case in cases if name_of(case) == change.benchmark)[:1]


def _slower_benchmark(run: _Run, prepared: Prepared, bad: Path) -> TimeOracle:
    """Return the oracle for the benchmark that is slower in BAD, the slowest first. Raises GateError if none is."""
    settings, budget_s = prepared.settings, run.request.budget_s
    take = round_taker(Sides(run.good, bad), prepared.lanes, run.launch)
    rate = settings.alarm_rate
    judged = measure_times(
        settings.benchmarks, take, alarm_rate=rate, budget_s=budget_s, progress=run.progress
    ).judgements
    slower = [each for each in judged if each.verdict is Verdict.SLOWER and each.ratio is not None]
    if not slower:
        raise GateError(
            "--bisect: BAD is not worse than GOOD: "
            f"{'; '.join(f'{each.benchmark} is {each.verdict}' for each in judged) or 'nothing was timed'}; "
            "allowed: a BAD that is worse, or a longer --budget"
        )
    slowest = max(slower, key=lambda each: each.ratio.value if each.ratio else 0.0).benchmark
    benchmark = next(each for each in settings.benchmarks if each.name == slowest)
    return TimeOracle(benchmark, run.good, prepared.lanes, rate, budget_s, run.launch, run.progress)


def _blamed(run: _Run, oracle: Oracle, last_good: str, first_bad: str) -> tuple[CounterChange | None, Blame | None]:
    """Return the change of the counter from the last good commit to the first bad one, and the code behind it."""
    assert isinstance(oracle, CounterOracle)
    with run.written(last_good) as base, run.written(first_bad) as head:
        cases = oracle.cases
        olds, news = count_side("base", cases, base, run.launch), count_side("head", cases, head, run.launch)
        change = change_of(oracle.wanted, compare_records(olds, news))
        jobs = jobs_by_benchmark({name_of(case): job_of(case) for case in cases})
        blames = find_blames([change] if change else [], jobs, base, head, run.launch)
    return change, next(iter(blames), None)
